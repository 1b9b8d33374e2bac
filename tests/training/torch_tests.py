"""Torch's own tests of torch.distributed (those that its wheel has), over a backend: a line for each test.

    tests/training/run -- PYTHON tests/training/torch_tests.py [--backend gloo] [PART OF A NAME ...]"""
import argparse
import os
import sys
import tempfile
import unittest

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*")
parser.add_argument("--backend", default=os.environ.get("BACKEND", "outboard"))
chosen = parser.parse_args() if __name__ == "__main__" else argparse.Namespace(backend=os.environ["BACKEND"], names=[])
os.environ["BACKEND"] = chosen.backend
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("INIT_METHOD", f"file://{os.environ['TEMP_DIR']}/init")
for folder in "barrier", "test_dir":
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

import outboard_torch  # noqa: E402, F401
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

for feature in "ddp", "subgroup":
    DistTestCases.backend_feature[feature].add("outboard")
from torch.testing._internal.distributed import distributed_test  # noqa: E402


class TestOver(distributed_test.DistributedTest._DistTestBase, distributed_test.TestDistBackend):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


class Table(unittest.TextTestResult):
    """A word and a name, in lines."""

    def _say(self, word, test):
        print(f"{word:8} {test.id().split('.')[-1]}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._say("ok", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._say("FAIL", test)

    def addError(self, test, error):
        super().addError(test, error)
        self._say("ERROR", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._say("skipped", test)


if __name__ == "__main__":
    loader = unittest.TestLoader()
    # Those of other devices would be skipped, a process each.
    names = [name for name in loader.getTestCaseNames(TestOver) if not any(word in name for word in ("cuda", "nccl", "gpu"))]
    loader.testNamePatterns = [f"*.{name}" for name in names if not chosen.names or any(part in name for part in chosen.names)]
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0, resultclass=Table).run(loader.loadTestsFromTestCase(TestOver))
    bad = len(result.failures) + len(result.errors)
    print(f"torch's tests over {chosen.backend}: {result.testsRun - bad - len(result.skipped)} ok, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(bad > 0)
