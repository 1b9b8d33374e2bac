# SPDX-License-Identifier: BSD-3-Clause
"""Torch's own tests of torch.distributed over a backend. They are gloo's: over `outboard` the same tests run, with each gloo group made by
outboard instead. Suites:

    c10d        those that torch's wheel has (DistributedTest: c10d, DDP, hooks, subgroups)
    dtensor     tests of DTensor, tensor parallelism and DeviceMesh, out of Debian's source package of pytorch (torch 2.6)
    checkpoint  those of torch.distributed.checkpoint, of the same
    fsdp2       of the same, those of FSDP2. They are for GPUs: what they say of cuda is read as cpu. Many need more of CUDA, so that gloo fails them, too

    tests/training/run -- PYTHON tests/training/torch_tests.py [--suite S] [--backend gloo] [PART OF A NAME ...]     a line for each test
    tests/training/run -- PYTHON tests/training/torch_tests.py --table [--suite S ...]                                both backends, as docs/measured/training.md has it"""
import argparse
import collections
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

SUITES = ["c10d", "dtensor", "fsdp2", "checkpoint"]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("names", nargs="*")
parser.add_argument("--backend", choices=["outboard", "gloo"], default="outboard")
parser.add_argument("--suite", nargs="+", choices=SUITES, default=SUITES)
parser.add_argument("--table", action="store_true")
chosen = parser.parse_args()
# The environment that torch's own runner sets for gloo.
os.environ.update(BACKEND="gloo", TEMP_DIR=tempfile.mkdtemp(), WORLD_SIZE=os.environ.get("WORLD_SIZE", "3"))
os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/init"
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")
for folder in "barrier", "test_dir":
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

import outboard_torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_distributed import MultiProcessTestCase, TEST_SKIPS  # noqa: E402
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


def ended(run):
    """Runs `_run` of a test in its process. A process that skips the test ends well for the others, though not with
    0."""
    @functools.wraps(run)
    def call(cls, *arguments, **more):
        try:
            run(cls, *arguments, **more)
        except SystemExit as end:
            if end.code in {skip.exit_code for skip in TEST_SKIPS.values()}:
                outboard_torch._backend.finalize()
            raise

    return classmethod(call)


def forked(self):
    """Forks the ranks: the parent has no MPI, and a spawn would import torch for each rank of each test."""
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


class TestOver(distributed_test.DistributedTest._DistTestBase, distributed_test.TestDistBackend):
    def setUp(self):
        super().setUp()
        forked(self)


TestOver._run = ended(TestOver._run.__func__)

CACHE = pathlib.Path(__file__).resolve().parents[2] / ".cache/training/pytorch"
FILES = {"dtensor": ["_tensor/test_*.py", "tensor/parallel/test_*.py", "test_device_mesh.py"], "fsdp2": ["_composable/fsdp/test_*.py"],
         "checkpoint": ["checkpoint/test_*.py", "checkpoint/e2e/test_*.py"]}
RANKS = 4
# The replacements with which a test for GPUs runs on the CPU.
AS_CPU = ((r"torch\.cuda\.device_count\(\)", str(RANKS)), (r"@skip_if_lt_x_gpu\(\d\)", ""), (r"not TEST_CUDA", "False"), (r"\btorch\.cuda\b", "torch.cpu"),
          (r"\.cuda\(\)", ".cpu()"), (r"([\"'])cuda", r"\1cpu"),
          # A decorator that torch 2.15 no longer has. It ran the test a second time, compiled.
          (r"\n +test_compiled_fsdp,", ""), (r"@test_compiled_fsdp\([^)]*\)", ""))


def sources():
    """The folder of torch's tests, which are fetched once. apt keeps its lists here, so that those of the machine stay
    as they are."""
    tests = CACHE / "test/distributed"
    if not tests.exists():
        print("fetching Debian's source package pytorch", flush=True)
        (CACHE / "lists/partial").mkdir(parents=True, exist_ok=True)
        (CACHE / "sources.list").write_text("deb-src http://deb.debian.org/debian trixie main\n")
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={CACHE}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
               "-o", f"Dir::State::Lists={CACHE}/lists", "-o", "APT::Sandbox::User=root"]
        subprocess.run([*apt, "update"], check=True, cwd=CACHE)
        subprocess.run([*apt, "source", "--download-only", "--tar-only", "pytorch"], check=True, cwd=CACHE)
        archive = next(CACHE.glob("pytorch_*.orig.tar.*"))
        subprocess.run(["tar", "xf", archive, "-C", CACHE, "--strip-components=1", "--wildcards", "*/test/distributed"], check=True)
    return tests


def cases_of(suite):
    """The classes of a suite that start processes. A file that the installed torch cannot import is named and left out."""
    if suite == "c10d":
        return [TestOver]
    MultiProcessTestCase._spawn_processes = forked
    if suite == "fsdp2":
        # The test harness compares this number with the number of ranks.
        torch.accelerator.device_count = lambda: RANKS
    found = []
    for file in (file for pattern in FILES[suite] for file in sorted(sources().glob(pattern))):
        text = file.read_text()
        for pattern, word in AS_CPU if suite == "fsdp2" else ():
            text = re.sub(pattern, word, text)
        module = sys.modules[file.stem] = types.ModuleType(file.stem)
        module.__file__ = str(file)
        try:
            exec(compile(text, file, "exec"), module.__dict__)
        except Exception as error:
            print(f"{file.name} is left out: {error}", file=sys.stderr, flush=True)
            continue
        found += [case for case in vars(module).values()
                  if isinstance(case, type) and issubclass(case, MultiProcessTestCase) and case.__module__ == module.__name__]
    for case in found:
        case._run = ended(case._run.__func__)
    return found


class Lines(unittest.TextTestResult):
    """Prints a word and a name for each test."""

    def _say(self, word, test):
        print(f"{word:8} {'.'.join(test.id().split('.')[-2:])}", flush=True)

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


def part(suite, name):
    """The row of the table to which a test belongs."""
    if suite != "c10d":
        return {"dtensor": "DTensor", "fsdp2": "FSDP2", "checkpoint": "checkpoint"}[suite]
    return next((row for row, pattern in (
        ("monitored_barrier", "monitored_barrier"), ("DDP", "ddp|DDP|DistributedDataParallel|SyncBatch|no_sync|static_graph|unused|undefined|grads_same"),
        ("model averaging", "averag|localSGD"), ("subgroups", "_group|subgroup"), ("objects", "object"),
        ("send and recv", "send|recv"), ("barrier", "barrier"), ("other", "")) if re.search(pattern, name)))


def table():
    seen = {"gloo": {}, "outboard": {}}
    for suite in chosen.suite:
        for backend, words in seen.items():
            done = subprocess.run([sys.executable, __file__, "--suite", suite, "--backend", backend, *chosen.names], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=False)
            words.update({(suite, name): word for word, name in re.findall(r"^(ok|FAIL|ERROR|skipped) +(\S+)$", done.stdout, re.MULTILINE)})
    counts = {backend: collections.Counter(part(*test) for test, word in words.items() if word == "ok") for backend, words in seen.items()}
    print("| tests of | ok over gloo | ok over outboard |\n|---|---|---|")
    for row in sorted(counts["gloo"] + counts["outboard"]):
        print(f"| {row} | {counts['gloo'][row]} | {counts['outboard'][row]} |")
    print(f"| all | {counts['gloo'].total()} | {counts['outboard'].total()} |\n")
    for test in sorted(seen["gloo"].keys() | seen["outboard"].keys()):
        theirs, ours = (seen[backend].get(test, "not run") for backend in ("gloo", "outboard"))
        if ours != theirs:
            print(f"{' '.join(test)}: outboard {ours}, gloo {theirs}")
    return any(seen["gloo"][test] == "ok" != seen["outboard"].get(test) for test in seen["gloo"])


def main():
    suite, loader = unittest.TestSuite(), unittest.TestLoader()
    for case in (case for name in chosen.suite for case in cases_of(name)):
        # Tests for other devices would be skipped, but would take a process each.
        names = [name for name in loader.getTestCaseNames(case) if not any(word in name for word in ("cuda", "nccl", "gpu"))]
        suite.addTests(case(name) for name in names if not chosen.names or any(part in name for part in chosen.names))
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0, resultclass=Lines).run(suite)
    bad = len(result.failures) + len(result.errors)
    print(f"torch's tests over {chosen.backend}: {result.testsRun - bad - len(result.skipped)} ok, {bad} failed, {len(result.skipped)} skipped")
    return bad > 0


if __name__ == "__main__":
    sys.exit(table() if chosen.table else main())
