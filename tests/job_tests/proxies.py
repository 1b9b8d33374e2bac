# SPDX-License-Identifier: BSD-3-Clause
"""Proxies that die or stall: the ranks continue, and print one warning."""
import contextlib, os, random, signal, tempfile, time
from pathlib import Path

from job_tests.running import BIN, HANGS, HERE, children, chosen, compile_c, expect, read_until, rest, start, stat, test, wait_for

TWO_HOSTS = ["--launcher-exec", HERE / "here", "-hosts", "127.0.0.1,localhost", "--map-by", "node"]


def one_fault(program, ranks, seed, act, timeout, hosts=()):
    """Runs `program`, lets `act` hurt a proxy at a seeded instant, and checks that the job ends well with one warning. A proxy
    counts as stalled after `timeout`."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        enough = Path(folder) / "enough"
        child = start(BIN / "mpirun", *hosts, "--timeout", HANGS, "-n", ranks, "--proxies", 1, program, enough,
                      env={"OUTBOARD_OFFLOAD": "on", "OUTBOARD_PROXY_TIMEOUT_MS": timeout})
        try:
            said = read_until(child, "ready")
            # On a busy machine a healthy proxy may also make no progress for so long that it is ended.
            proxies = children(child.pid, "outboard-proxy")
            time.sleep(chance.uniform(0, 0.25))
            if proxies:
                act(chance.choice(proxies))
            if "proxy" not in said:
                said += read_until(child, "proxy")
            # Some rounds run without the proxy.
            time.sleep(0.1)
            enough.touch()
            said += rest(child)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {ranks} ranks: {error}") from None
    warnings = [line for line in said.splitlines() if "proxy" in line]
    code = child.returncode
    expect(code == 0 and "rounds" in said, f"seed {seed}, {ranks} ranks: exit code {code}\n{said}")
    # While one proxy is stopped, a healthy one of another host may be taken for stalled.
    most = 2 if hosts and act is stall else 1
    expect(1 <= len(warnings) <= most, f"seed {seed}, {ranks} ranks: {len(warnings)} warnings, not one\n{said}")


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def stall(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    wait_for("end of the stopped proxy", lambda: (stat(pid) or "Z")[-1] == "Z")


@test
def proxies_that_are_killed():
    program = compile_c(HERE / "faults/churn.c")
    instants = 200 if chosen.more else 20
    for i in range(instants):
        one_fault(program, 2 + i % 3, chosen.seed + i, kill, "60s")
    return f"{instants} instants, seeds from {chosen.seed}"


@test
def proxies_of_two_hosts():
    """A proxy of one of two hosts is killed or stalls. The ranks of its host go on, and those of the other host ask the
    ranks."""
    program = compile_c(HERE / "faults/churn.c")
    instants = 200 if chosen.more else 6
    for i in range(instants):
        act, timeout = (stall, "1s") if i % 3 == 2 else (kill, "60s")
        one_fault(program, 2 + i % 3, chosen.seed + 2000 + i, act, timeout, TWO_HOSTS)
    return f"{instants} instants, seeds from {chosen.seed + 2000}"


@test
def proxies_that_stall():
    program = compile_c(HERE / "faults/churn.c")
    for i in range(20 if chosen.more else 4):
        one_fault(program, 2 + i % 3, chosen.seed + 1000 + i, stall, "100ms")


@test
def auto_leaves_operations_to_ranks_that_only_wait():
    """Nothing happens between start and wait of churn's operations, so a proxy would only cost time."""
    program = compile_c(HERE / "faults/churn.c")
    child = start(BIN / "mpirun", "--timeout", HANGS, "-n", 2, "--proxies", 1, program, "2000",
                  env={"OUTBOARD_OFFLOAD": "auto", "OUTBOARD_STATS": "1"})
    said = rest(child)
    counted = {words[0]: int(words[1]) for words in map(str.split, said.splitlines()) if words and words[0].startswith("offload")}
    # The first operations may come before the proxy runs. They are counted as refused, not as spared.
    few, many = (counted.get(name, 0) for name in ("offloaded", "offload_spared"))
    expect(child.returncode == 0 and 0 < few < many, f"exit code {child.returncode}\n{said}")


@test
def auto_tries_both_ways_between_hosts():
    program = compile_c(HERE / "faults/churn.c")
    child = start(BIN / "mpirun", *TWO_HOSTS, "--timeout", HANGS, "-n", 2, "--proxies", 1, program, "4000",
                  env={"OUTBOARD_OFFLOAD": "auto", "OUTBOARD_STATS": "1"})
    said = rest(child)
    counted = {line.split()[0] for line in said.splitlines() if line.startswith("offload")}
    expect(child.returncode == 0 and counted >= {"offloaded", "offload_spared"}, f"exit code {child.returncode}\n{said}")


@test
def edges_of_one_exchange_go_by_their_lengths():
    """In an exchange between hosts, blocks shorter than 512 KiB are messages of the ranks, and proxies carry out the others."""
    program = compile_c(HERE / "faults/lengths.c")
    for ranks, divisor in [(2, 1), (4, 1), (4, 10)]:
        child = start(BIN / "mpirun", *TWO_HOSTS, "--timeout", HANGS, "-n", ranks, "--proxies", 1, program, 24, divisor,
                      env={"OUTBOARD_OFFLOAD": "auto", "OUTBOARD_STATS": "1"})
        said = rest(child)
        expect(child.returncode == 0 and "24 rounds, 0 bytes wrong" in said, f"{ranks} ranks, exit code {child.returncode}\n{said}")
        by_ranks = [line for line in said.splitlines() if line.startswith(("MPI_Ialltoallv", "MPI_Ineighbor")) and "by the ranks themselves" in line]
        expect(len(by_ranks) == 2 or divisor == 1, said)


@test
def a_root_is_done_before_another_host_has_come():
    program = compile_c(HERE / "faults/ahead.c")
    for count in (1000, 128 << 10):
        child = start(BIN / "mpirun", *TWO_HOSTS, "--timeout", HANGS, "-n", 2, "--proxies", 1, program, count,
                      env={"OUTBOARD_OFFLOAD": "on"})
        said = rest(child)
        expect(child.returncode == 0 and "20 rounds" in said, f"{count} items: exit code {child.returncode}\n{said}")
