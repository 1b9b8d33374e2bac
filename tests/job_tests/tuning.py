# SPDX-License-Identifier: BSD-3-Clause
"""Choices by measurement: tables, measurements of messages, and tables that are refused (docs/tuning.md)."""
import os, re, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, compile_c, expect, mpirun, run, test

HEAD = "processor = any\nkernel = any\nrights = any\n"
LOADS = [f"read.{distance}.{load}" for distance in ("l2", "l3", "far") for load in ("alone", "many", "exchange")]


def counted(tuning):
    """The counters of two ranks that exchange long messages: the first column, by name. Ranks choose only if they may spin, so
    the cores of other jobs count as free."""
    code, output = mpirun("-genv", "OUTBOARD_CLAIM_CORES", 0, "-genv", "OUTBOARD_TUNING", tuning, "-genv", "OUTBOARD_STATS", "1", "-n", 2,
                          compile_c(HERE / "programs/p2p_ways.c"))
    expect(code == 0, f"code {code}\n{output}")
    return dict(re.findall(r"^(\w+) +(\S+)", output, re.M))


@test
def a_table_decides():
    if len(os.sched_getaffinity(0)) < 2:
        return "one cpu: ranks share it, and messages are read"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tuning"
        for sizes, is_read in (("none", False), ("16KiB-", True)):
            path.write_text(HEAD + "".join(f"{name} = {sizes}\n" for name in LOADS))
            seen = counted(path)
            expect(("eager_messages_sent" in seen) != is_read, f"with {sizes}: {seen}")
            expect("cma_bytes" in seen or not is_read, f"with {sizes}: {seen}")
        code, output = run(BIN / "outboard", "info", "--tuning", 
                           env={"OUTBOARD_TUNING": str(path), "OUTBOARD_INLINE_BYTES_MAX": "8KiB"})
        expect(code == 0 and re.search(rf"read\.l3\.many +16KiB- +table {path}", output), output)
        expect(re.search(r"flat_bytes_max +8KiB +setting", output) and re.search(r"eager_bytes_max +64KiB +built in", output), output)


@test
def messages_show_it_without_a_table():
    if len(os.sched_getaffinity(0)) < 2:
        return "one cpu"
    expect("cma_bytes" in counted("off"), "no message was read to see how long that takes")
    code, output = run(BIN / "outboard", "info", "--tuning", env={"OUTBOARD_TUNING": "off"})
    expect(code == 0 and re.search(r"read\.l2\.alone +not known", output), output)


@test
def broken_tables_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tuning"
        for text, wrong in (("teapot\n", "line 1"), (HEAD + "read.l2.many = 5\n", "line 4: read.l2.many"), ("", "does not name")):
            path.write_text(text)
            code, output = mpirun("-genv", "OUTBOARD_TUNING", path, "-n", 2, "true")
            expect(code != 0 and wrong in output and str(path) in output, f"code {code}: {output}")
        code, output = mpirun("-genv", "OUTBOARD_TUNING", Path(folder) / "none", "-n", 2, "true")
        expect(code != 0 and "cannot read the tuning table" in output, f"code {code}: {output}")
