"""Torch's own tests of torch.distributed, those that its wheel has (DistributedTest: c10d, DDP, hooks, subgroups), over a backend. They are gloo's: over
`outboard` the same tests run, with each gloo group made by outboard instead.

    tests/training/run -- PYTHON tests/training/torch_tests.py [--backend gloo] [PART OF A NAME ...]     a line for each test
    tests/training/run -- PYTHON tests/training/torch_tests.py --table                                   both backends, as docs/training.md has it"""
import argparse
import collections
import functools
import os
import re
import subprocess
import sys
import tempfile
import unittest

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("names", nargs="*")
parser.add_argument("--backend", choices=["outboard", "gloo"], default="outboard")
parser.add_argument("--table", action="store_true")
chosen = parser.parse_args()
# As torch's own runner has it for gloo.
os.environ.update(BACKEND="gloo", TEMP_DIR=tempfile.mkdtemp(), WORLD_SIZE=os.environ.get("WORLD_SIZE", "3"))
os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/init"
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")
for folder in "barrier", "test_dir":
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

import outboard_torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402


def over_outboard(function):
    @functools.wraps(function)
    def call(*words, **more):
        swap = {"gloo": "outboard"}
        return function(*(swap.get(word, word) if isinstance(word, str) else word for word in words),
                        **{name: swap.get(word, word) if isinstance(word, str) else word for name, word in more.items()})

    return call


if chosen.backend == "outboard":
    for name in "init_process_group", "new_group":
        setattr(dist, name, over_outboard(getattr(dist, name)))


class TestOver(distributed_test.DistributedTest._DistTestBase, distributed_test.TestDistBackend):
    def setUp(self):
        super().setUp()
        # The parent has no MPI; a spawn would import torch for each rank of each test.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


    @classmethod
    def _run(cls, *arguments, **more):
        try:
            super()._run(*arguments, **more)
        except SystemExit as end:
            # One that skips the test ends well for the others, though not with 0.
            if end.code in {skip.exit_code for skip in TEST_SKIPS.values()}:
                outboard_torch._backend.finalize()
            raise


class Lines(unittest.TextTestResult):
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


def part(name):
    """Which of the table's rows a test belongs to."""
    return next((row for row, pattern in (
        ("monitored_barrier", "monitored_barrier"), ("DDP", "ddp|DDP|DistributedDataParallel|SyncBatch|no_sync|static_graph|unused|undefined|grads_same"),
        ("model averaging", "averag|localSGD"), ("subgroups", "_group|subgroup"), ("objects", "object"),
        ("send and recv", "send|recv"), ("barrier", "barrier"), ("other", "")) if re.search(pattern, name)))


def table():
    seen = {}
    for backend in "gloo", "outboard":
        done = subprocess.run([sys.executable, __file__, "--backend", backend, *chosen.names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
        seen[backend] = {name: word for word, name in re.findall(r"^(ok|FAIL|ERROR|skipped) +(test_\w+)$", done.stdout, re.MULTILINE)}
    counts = {backend: collections.Counter(part(name) for name, word in words.items() if word == "ok") for backend, words in seen.items()}
    print("| tests of | ok over gloo | ok over outboard |\n|---|---|---|")
    for row in sorted(counts["gloo"] + counts["outboard"]):
        print(f"| {row} | {counts['gloo'][row]} | {counts['outboard'][row]} |")
    print(f"| all | {counts['gloo'].total()} | {counts['outboard'].total()} |\n")
    for name, word in seen["outboard"].items():
        if word in ("FAIL", "ERROR") or word != seen["gloo"].get(name, word):
            print(f"{name}: outboard {word}, gloo {seen['gloo'].get(name, 'not run')}")
    return any(seen["gloo"][name] == "ok" != seen["outboard"].get(name) for name in seen["gloo"])


def main():
    loader = unittest.TestLoader()
    # Those of other devices would be skipped, a process each.
    names = [name for name in loader.getTestCaseNames(TestOver) if not any(word in name for word in ("cuda", "nccl", "gpu"))]
    loader.testNamePatterns = [f"*.{name}" for name in names if not chosen.names or any(part in name for part in chosen.names)]
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0, resultclass=Lines).run(loader.loadTestsFromTestCase(TestOver))
    bad = len(result.failures) + len(result.errors)
    print(f"torch's tests over {chosen.backend}: {result.testsRun - bad - len(result.skipped)} ok, {bad} failed, {len(result.skipped)} skipped")
    return bad > 0


if __name__ == "__main__":
    sys.exit(table() if chosen.table else main())
