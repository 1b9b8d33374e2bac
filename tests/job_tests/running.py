# SPDX-License-Identifier: BSD-3-Clause
"""The functions that tests of jobs share: starting, reading and ending jobs, and finding their processes. `@test`
registers a test."""
import argparse, os, re, signal, subprocess, time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parent
BIN = ROOT / "build/bin"
PROGRAMS = ROOT / "target/programs"
TESTS = []
# In seconds. A job that takes longer counts as deadlocked. The time is long enough for a shared machine; no test
# asserts a wall time.
HANGS = 120
# The runner's options: `more`, `seed`.
chosen = argparse.Namespace(more=False, seed=1)


def test(function):
    TESTS.append(function)
    return function


def start(*words, env=None, **more):
    return subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", stdin=more.pop("stdin", subprocess.DEVNULL), start_new_session=True,
                            env={**os.environ, **(env or {})}, **more)


def finish(child, timeout=HANGS):
    try:
        output, _ = child.communicate(timeout=timeout)
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        raise AssertionError(f"still running after {timeout} s; it said:\n{output}")


def run(*words, timeout=HANGS, **more):
    return finish(start(*words, **more), timeout)


def mpirun(*words, **more):
    return run(BIN / "mpirun", *words, **more)


def stat(pid):
    """(name, parent, state) of a process, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = re.match(r"\d+ \((.*)\) (.*)", text, re.S).groups()
    return name, int(rest.split()[1]), rest.split()[0]


def children(parent, name):
    """Living processes of a name, anywhere below a parent."""
    table = {int(p.name): s for p in Path("/proc").glob("[0-9]*") if (s := stat(p.name))}

    def is_below(pid):
        while pid in table and pid != parent:
            pid = table[pid][1]
        return pid == parent

    return sorted(p for p, s in table.items() if s[0] == name[:15] and s[2] != "Z" and p != parent and is_below(p))


def wait_for(what, condition):
    until = time.monotonic() + HANGS
    while not (value := condition()):
        assert time.monotonic() < until, f"no {what} after {HANGS} s"
        time.sleep(0.005)
    return value


def read_until(child, word):
    """Reads the child's lines up to one that contains `word`, and returns them."""
    seen = ""
    for line in child.stdout:
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"the job ended without saying '{word}':\n{seen}")


def rest(child):
    """The child's output from here to its end. `finish` alone would lose lines that were read ahead."""
    said = child.stdout.read()
    return said + finish(child)[1]


def compile_c(source, name=None):
    program = PROGRAMS / (name or Path(source).stem)
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    subprocess.run([BIN / "mpicc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-lm"],
                   check=True)
    return program


def expect(condition, facts):
    assert condition, facts
