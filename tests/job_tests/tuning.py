# SPDX-License-Identifier: BSD-3-Clause
"""Choices by measurement: tables, measurements of messages, facts of earlier jobs, and files that are refused (docs/tuning.md)."""
import json, os, re, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, ROOT, compile_c, expect, mpirun, run, test

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


def ways(before, via=(), **settings):
    """What each line of bench/choice.c says of a ping-pong: the part of the bytes that was read, by length; and all that the job
    printed. Each rank gets `before` messages of each length before the 64 that count. `via` starts mpirun."""
    program = compile_c(ROOT / "bench/choice.c")
    code, output = run(*via, BIN / "mpirun", "-n", 2, program, before, "latency", env={"OUTBOARD_CLAIM_CORES": "0", **settings})
    expect(code == 0, f"code {code}\n{output}")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["bytes"]: line["read"] for line in lines}, output


def told(**settings):
    code, output = run(BIN / "outboard", "info", "--tuning", env=settings)
    expect(code == 0, f"code {code}\n{output}")
    return output


@test
def facts_of_earlier_jobs_come_first():
    if len(os.sched_getaffinity(0)) < 2:
        return "one cpu"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tuning"
        # A provisional fact holds for the first 64 messages. Where others use the cores, long messages are read nevertheless while
        # their sender does not run. Without a fact half of the messages go each way.
        for way, least, most in (("read", 0.8, 1), ("cells", 0, 0.4)):
            path.write_text(HEAD + "".join(f"facts.{name[5:]} = {way}, provisional: 128KiB-\n" for name in LOADS))
            read, output = ways(1, OUTBOARD_TUNING=str(path))
            expect(least <= read[256 << 10] <= most, f"{way}: {output}")


def quiet_machine(folder):
    """The words before a command that sees a machine on which nobody works: its /proc/stat stands still. None where only root may."""
    stat = Path(folder) / "stat"
    stat.write_text(Path("/proc/stat").read_text())
    words = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/stat && exec "$@"', stat]
    try:
        return words if run(*words, "true")[0] == 0 else []
    except OSError:
        return []


@test
def facts_are_kept_for_the_next_job():
    if len(os.sched_getaffinity(0)) < 2:
        return "one cpu"
    with tempfile.TemporaryDirectory() as folder:
        cache, via = {"XDG_CACHE_HOME": f"{folder}/cache"}, quiet_machine(folder)
        path = Path(re.search(r"^facts +none +jobs keep them in (\S+)$", told(**cache), re.M).group(1))
        ways(200, via, **cache, OUTBOARD_TUNING_FACTS="0")
        expect(not path.parent.exists(), f"kept although off: {path}")
        for _ in range(2):
            _, output = ways(200, via, **cache)
            expect("tuning" not in output, output)
            if path.exists():
                break
        # Nothing is kept where others work, or no way is clearly faster.
        kept = path.exists()
        if kept:
            expect([entry.name for entry in path.parent.iterdir()] == [path.name], list(path.parent.iterdir()))
            text = path.read_text()
            expect(re.search(r"^facts\.\w+\.alone = .*provisional: ", text, re.M), text)
            expect(re.search(rf"^facts\.\w+\.alone +.* jobs, {path}$", told(**cache), re.M), told(**cache))
            machine = "".join(line + "\n" for line in text.splitlines() if not line.startswith("facts."))
            path.write_text(machine + "".join(f"facts.{name[5:]} = read: 128KiB-\n" for name in LOADS))
            read, output = ways(200, **cache)
            expect(read[256 << 10] > 0.8, output)
        path.parent.mkdir(parents=True, exist_ok=True)
        for broken in (b"teapot\n", b"\xff" * 99, b"", os.urandom(1 << 17), b"x" * 2000):
            path.write_bytes(broken)
            code, output = mpirun("-n", 1, "true", env=cache)
            expect(code == 0 and output.count("tuning table") == 1 and str(path) in output, output)
        return None if kept else "no job has kept a fact"


@test
def caches_that_cannot_be_written_do_no_harm():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.touch()
        for cache in (file, "/proc"):
            _, output = ways(200, XDG_CACHE_HOME=str(cache))
            expect("tuning" not in output, output)
