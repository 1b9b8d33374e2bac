"""Proxies that die or stall: the ranks continue, and print one warning."""
import os, random, signal, time

from job_tests.running import (BIN, HERE, children, chosen, compile_c, expect, finish, read_until,
                               start, stat, test, wait_for)


def one_fault(program, ranks, seed, act, environment, hosts=(), runs_ms=350):
    """Runs `program`, lets `act` hurt a proxy at a seeded instant, and checks that it ends well with one warning."""
    chance = random.Random(seed)
    child = start(BIN / "mpirun", *hosts, "-n", ranks, "--proxies", 1, program, runs_ms,
                  env={"OUTBOARD_OFFLOAD": "on", **environment})
    try:
        read_until(child, "ready")
        proxy = chance.choice(wait_for("proxy", lambda: children(child.pid, "outboard-proxy")))
        time.sleep(chance.uniform(0, 0.25))
        act(proxy)
        code, output = finish(child)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {ranks} ranks: {error}") from None
    warnings = [line for line in output.splitlines() if "proxy" in line]
    expect(code == 0 and "rounds" in output, f"seed {seed}, {ranks} ranks: exit code {code}\n{output}")
    expect(len(warnings) == 1, f"seed {seed}, {ranks} ranks: {len(warnings)} warnings, not one\n{output}")


@test
def proxies_that_are_killed():
    program = compile_c(HERE / "faults/churn.c")
    instants = 200 if chosen.more else 20
    for i in range(instants):
        one_fault(program, 2 + i % 3, chosen.seed + i, lambda pid: os.kill(pid, signal.SIGKILL), {})
    return f"{instants} instants, seeds from {chosen.seed}"


def stall(pid):
    # It may be gone already: on a busy machine a healthy proxy, too, can make no progress for that long.
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        pass
    wait_for("end of the stopped proxy", lambda: (stat(pid) or "Z")[-1] == "Z")


@test
def proxies_of_two_hosts():
    """A proxy of one of two hosts is killed, or stalls. The ranks of its host go on, and those of the other ask them."""
    program = compile_c(HERE / "faults/churn.c")
    hosts = ["--launcher-exec", HERE / "here", "-hosts", "127.0.0.1,localhost", "--map-by", "node"]
    instants = 200 if chosen.more else 6
    for i in range(instants):
        stalls = i % 3 == 2
        act = stall if stalls else lambda pid: os.kill(pid, signal.SIGKILL)
        # The other proxy is healthy, and must not count as stalled on a busy machine.
        environment = {"OUTBOARD_PROXY_TIMEOUT_MS": "1s"} if stalls else {}
        one_fault(program, 2 + i % 3, chosen.seed + 2000 + i, act, environment, hosts, 1200)
    return f"{instants} instants, seeds from {chosen.seed + 2000}"


@test
def proxies_that_stall():
    program = compile_c(HERE / "faults/churn.c")
    for i in range(20 if chosen.more else 4):
        one_fault(program, 2 + i % 3, chosen.seed + 1000 + i, stall, {"OUTBOARD_PROXY_TIMEOUT_MS": "100ms"})
