# SPDX-License-Identifier: BSD-3-Clause
"""mpirun: programs, options, output, exit codes, and what remains when a process dies."""
import json, os, re, shutil, signal, subprocess, sys, tempfile
from pathlib import Path

from job_tests.running import (BIN, HANGS, HERE, ROOT, children, compile_c, expect, finish, mpirun,
                               read_until, run, start, stat, test, wait_for)

SCRIPT = """
import os, sys, time
rank = int(os.environ["OUTBOARD_RANK"])
"""


@test
def exit_codes():
    code, output = mpirun("-n", 3, "sh", "-c", 'exit $((OUTBOARD_RANK == 1 ? 7 : 0))')
    expect(code == 7, f"exit code {code}, not rank 1's 7:\n{output}")
    expect(mpirun("-n", 2, "true")[0] == 0, "a job of `true` failed")
    code, output = mpirun("-n", 2, "/nonexistent")
    expect(code in (126, 127) and "/nonexistent" in output, f"missing program: {code}\n{output}")
    code, output = mpirun("--no-such-option")
    expect(code != 0 and "no-such-option" in output, f"unknown option: {code}\n{output}")


@test
def abort():
    code, output = mpirun("-n", 4, compile_c(HERE / "faults/ends.c"), "abort")
    expect(code == 42, f"exit code {code}, not MPI_Abort's 42:\n{output}")
    expect("rank 1" in output and "MPI_Abort" in output, f"no line says who aborted:\n{output}")


@test
def labels_are_whole_lines():
    line = "x" * 3000
    code, output = mpirun("-l", "-n", 4, sys.executable, "-c",
                          SCRIPT + f"for i in range(50): os.write(1, b'{line[:1500]}'); os.write(1, b'{line[1500:]}\\n')")
    lines = output.splitlines()
    expect(code == 0 and len(lines) == 200, f"{len(lines)} lines, code {code}")
    for text in lines:
        expect(re.fullmatch(r"\[[0-3]\] x{3000}", text), f"a torn line of {len(text)} characters: {text[:60]}")


@test
def several_programs_and_variables():
    with tempfile.TemporaryDirectory() as folder:
        code, output = mpirun("-l", "-genv", "A", "all", "-n", 1, "-env", "B", "one", "-wdir", folder, "sh", "-c",
                              "echo $A $B $(pwd)", ":", "-n", 2, "sh", "-c", "echo $A $B.")
        expect(code == 0, f"code {code}\n{output}")
        expect(sorted(output.splitlines()) == sorted([f"[0] all one {folder}", "[1] all .", "[2] all ."]), output)


@test
def standard_input_goes_to_rank_0():
    child = start(BIN / "mpirun", "-n", 3, "cat", stdin=subprocess.PIPE)
    output, _ = child.communicate("one\ntwo\n", timeout=HANGS)
    expect(child.returncode == 0 and output == "one\ntwo\n", f"code {child.returncode}: {output!r}")


@test
def local_rank_variables():
    code, output = mpirun("-n", 2, "env")
    for name in ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"]:
        expect(sorted(re.findall(rf"^{name}=(\d)", output, re.M)) == ["0", "1"], f"{name} is not set for both ranks")


@test
def a_job_of_one_without_mpirun():
    code, output = run(compile_c(HERE / "faults/churn.c"), "50")
    expect(code == 0 and "rounds" in output, f"code {code}\n{output}")


def left_over(name, shm):
    running = [p.name for p in Path("/proc").glob("[0-9]*") if (s := stat(p.name)) and s[0] == name and s[2] != "Z"]
    files = [f for f in os.listdir("/dev/shm") if f not in shm]
    return running, files


@test
def nothing_is_left_behind():
    program = compile_c(HERE / "faults/churn.c", "churn_left")
    for victim, sent in [("mpirun", signal.SIGINT), ("mpirun", signal.SIGTERM), ("mpirun", signal.SIGKILL),
                         ("churn_left", signal.SIGKILL), ("churn_left", signal.SIGSEGV)]:
        shm = os.listdir("/dev/shm")
        child = start(BIN / "mpirun", "-n", 3, "--proxies", 1, program, 20000, env={"OUTBOARD_OFFLOAD": "on"})
        read_until(child, "ready")
        pid = child.pid if victim == "mpirun" else children(child.pid, victim)[1]
        os.kill(pid, sent)
        code, output = finish(child)
        expect(code != 0, f"{victim} {sent.name}: exit code 0")
        if victim != "mpirun":
            expect(code == 128 + sent, f"exit code {code}, not {128 + sent}")
            lines = [line for line in output.splitlines() if "rank" in line and str(pid) in line]
            expect(len(lines) == 1 and re.search(r"signal|SIG", lines[0]), f"not one line on the dead rank:\n{output}")
        wait_for(f"end of all processes after {victim} {sent.name}",
                 lambda: left_over("churn_left", shm) == ([], []))


@test
def nothing_is_left_of_spawned_processes():
    """Nothing is left, whoever dies: the spawner, one of the spawned, or the launcher. It holds also with a launcher of
    the program's own."""
    program = compile_c(HERE / "faults/spawns.c", "spawns_left")
    for alone in (False, True):
        for victim in ("parent", "child", "mpirun"):
            shm = os.listdir("/dev/shm")
            words = [program] if alone else [BIN / "mpirun", "-n", 1, program]
            child = start(*words)
            said = read_until(child, "ready") + read_until(child, "ready")
            pids = {role: int(pid) for role, pid in re.findall(r"(parent|child) (\d+) ready", said)}
            pids["mpirun"] = stat(pids["child"])[1]
            os.kill(pids[victim], signal.SIGKILL)
            code, output = finish(child)
            expect(code != 0, f"{victim} killed, alone {alone}: exit code 0\n{output}")
            wait_for(f"end of all processes after the death of the {victim}, alone {alone}",
                     lambda: left_over("spawns_left", shm) == ([], []) and stat(pids["mpirun"]) is None)


@test
def another_build_is_refused_at_once():
    """A copy of the tree in which only mpirun claims to be of another build."""
    told = json.loads(run(BIN / "outboard", "info", "--json")[1])
    build = int(told["build"], 16)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT / "build", tree, symlinks=True)
        program = compile_c(HERE / "faults/spawns.c", "spawns_left")
        code = (tree / "bin/mpirun").read_bytes()
        expect(build.to_bytes(8, "little") in code, f"mpirun does not hold its build, {build:x}")
        (tree / "bin/mpirun").unlink()
        (tree / "bin/mpirun").write_bytes(code.replace(build.to_bytes(8, "little"), (build ^ 1).to_bytes(8, "little")))
        (tree / "bin/mpirun").chmod(0o755)
        # The program runs under mpirun, and starts an mpirun of its own.
        for words in ([tree / "bin/mpirun", "-n", 2, program], [program]):
            code, output = run(*words, env={"LD_LIBRARY_PATH": str(tree / "lib")})
            expect(code != 0 and "must be of one build" in output and f"{build:016x}" in output, f"exit code {code}:\n{output}")


@test
def output_that_cannot_be_written_ends_the_job_with_the_reason():
    lines = "for i in $(seq 20000); do echo line; done"
    here = ("--launcher-exec", HERE / "here", "-hosts", "127.0.0.1,localhost")
    for where in [("-n", 2), here]:
        child = subprocess.run([BIN / "mpirun", *map(str, where), "sh", "-c", lines], stdout=open("/dev/full", "w"),
                               stderr=subprocess.PIPE, text=True, timeout=HANGS)
        said = child.stderr
        expect(child.returncode == 1 and said.count("standard output: No space left on device") == 1 and "SIGPIPE" not in said,
               f"{where}: exit code {child.returncode}\n{said}")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink("/dev/full", f"{folder}/out.0")
        code, output = mpirun("-n", 1, "-outfile-pattern", f"{folder}/out.%r", "sh", "-c", lines)
        expect(code == 1 and "out.0: No space left on device" in output and "SIGPIPE" not in output, f"{code}\n{output}")
