# SPDX-License-Identifier: BSD-3-Clause
"""Proxies on other computers than their ranks (mpirun --dpu-hostfile): h3 and h4 run those of h1 and h2, and share nothing with
them but the network. Those of failures need `--more`."""
import os, re, signal, time

import jobs, lab
from failures import one_instant
from job_tests import running
from job_tests.running import HERE, expect, test

OFFLOAD = HERE / "hosts/offload.c"


class Offload:
    """A running `offload` on h1 and h2, whose proxies run on h3 and h4."""

    def __init__(self, hosts, seconds, pause_ms=20, ranks=1, offload="on", **settings):
        self.hosts = hosts.hosts[:4]
        self.dpus = hosts.hosts[2:4]
        file = lab.STATE / "dpus"
        file.write_text("h3\nh4\n")
        settings = {"OUTBOARD_OFFLOAD": offload, "OUTBOARD_STATS": 1, **settings}
        given = [word for pair in settings.items() for word in ["-genv", *pair]]
        self.child = jobs.start(self.hosts[0], jobs.MPIRUN, "-hosts", f"h1:{ranks},h2:{ranks}", "--dpu-hostfile", file, *given,
                                running.compile_c(OFFLOAD), seconds, pause_ms)

    def begin(self):
        running.read_until(self.child, "offloading")

    def proxy(self, host):
        """The number of the proxy's process on a host."""
        found = [pid for pid, line in host.processes() if "outboard-proxy" in line]
        return found[0] if found else None

    def ends_well(self, timeout=running.HANGS):
        output = running.finish(self.child, timeout)[1]
        expect("wrong data" not in output, f"wrong data:\n{output}")
        expect(self.child.returncode == 0 and "all right" in output, f"{self.child.returncode}\n{output}")
        return output


def counted(output, name):
    """A counter of all ranks together, from OUTBOARD_STATS=1."""
    found = re.search(rf"^{name} +(\d+)", output, re.M)
    return int(found.group(1)) if found else 0


@test
def proxies_on_other_computers_carry_out_collectives(hosts):
    # However busy the machine is, no rank gives its proxy up.
    output = Offload(hosts, 1, 500, OUTBOARD_PROXY_TIMEOUT_MS=60000).ends_well()
    offloaded, early = counted(output, "offloaded"), re.search(r"early (\d+) of (\d+)", output)
    expect(offloaded > 0 and not counted(output, "recovered"), output)
    # Some ended although no rank made an MPI call.
    expect(int(early.group(1)) > 0, output)
    jobs.nothing_left(hosts)
    return f"{offloaded} operations, early {early.group(1)} of {early.group(2)}"


# Programs of tests/programs whose messages or collectives proxies on other computers carry, and on how many ranks.
MESSAGES = {"p2p_ways": 3, "persistent": 2, "p2p_modes": 4, "p2p_receives": 4, "p2p_requests": 4, "p2p_order": 4, "partitioned": 4}
COLLECTIVES = {name: 4 for name in ["coll_regular", "coll_vector", "coll_derived", "coll_reduce", "coll_operators", "coll_long",
                                    "neighbors", "inter_collectives"]}


def carry(hosts, programs, functions):
    """Runs programs, a dict as above, on h1 and h2, and looks whether proxies carried functions whose names fit a pattern."""
    file = lab.STATE / "dpus"
    file.write_text("h3\nh4\n")
    carried = 0
    for name, ranks in programs.items():
        settings = ["-genv", "OUTBOARD_OFFLOAD", "on", "-genv", "OUTBOARD_STATS", 1, "-genv", "OUTBOARD_PROXY_TIMEOUT_MS", 60000]
        code, output = jobs.on(hosts.hosts[0], jobs.MPIRUN, "-hosts", "h1:2,h2:2", "-n", ranks, "--map-by", "node",
                               "--dpu-hostfile", file, *settings, jobs.program(name))
        expect(code == 0 and not counted(output, "recovered"), f"{name}: {code}\n{output}")
        carried += len(re.findall(rf"^MPI_(?:{functions}) on .* proxy carried", output, re.M))
    expect(carried > 0, "nothing was carried")
    jobs.nothing_left(hosts)
    return f"{carried} kinds of operations"


@test
def proxies_on_other_computers_carry_messages(hosts):
    return carry(hosts, {"p2p_ways": 3, "persistent": 2}, "Isend|Irecv")


@jobs.rare
@test
def proxies_on_other_computers_carry_messages_of_all_programs(hosts):
    return carry(hosts, MESSAGES, "Isend|Irecv")


@test
def proxies_on_other_computers_serve_spawned_ranks(hosts):
    # A proxy that wrote to a rank that has ended would stand still for 5 s each time. One that dropped what came for a rank before
    # it joined would leave it waiting.
    file = lab.STATE / "dpus"
    file.write_text("h3\nh4\n")
    settings = ["-genv", "OUTBOARD_OFFLOAD", "on", "-genv", "OUTBOARD_PROXY_TIMEOUT_MS", 60000]
    code, output = jobs.on(hosts.hosts[0], jobs.MPIRUN, "-hosts", "h1:2,h2:2", "--dpu-hostfile", file, *settings,
                           running.compile_c(HERE / "hosts/worlds.c"), 20)
    expect(code == 0 and "all right" in output, f"{code}\n{output}")
    jobs.nothing_left(hosts)


@test
def ranks_and_proxies_on_other_computers_share_collectives(hosts):
    return carry(hosts, {"coll_regular": 4}, r"I\w+")


@jobs.rare
@test
def ranks_and_proxies_on_other_computers_share_collectives_of_all_programs(hosts):
    return carry(hosts, COLLECTIVES, r"I\w+")


def suite(hosts, words, timeout):
    """Runs a suite on h1 with proxies on h3 and h4. Ranks and proxies share this machine's few cores, so a rank that waits
    sleeps at once, and none gives its proxy up because it is slow."""
    file = lab.STATE / "dpus"
    file.write_text("h3\nh4\n")
    settings = ["env", "OUTBOARD_SPIN_US=0", "OUTBOARD_PROXY_TIMEOUT_MS=60000"]
    code, output = jobs.on(hosts.hosts[0], *settings, *words, "--dpu-hostfile", file, timeout=timeout)
    expect(code == 0, f"{code}\n{output}")
    jobs.nothing_left(hosts)
    return output.splitlines()[-1]


@jobs.rare
@test
def mpi4pys_suite_runs_with_proxies_on_other_computers(hosts):
    return suite(hosts, [*jobs.MPI4PY, "--hosts", "h1:2,h2:2", "--ranks", 4, "--timeout", 3600], 4000)


@jobs.rare
@test
def mpichs_lists_run_with_proxies_on_other_computers(hosts):
    return suite(hosts, [*jobs.CONFORMANCE, "coll", "pt2pt", "part", "--quick", "--hosts", "h1:8,h2:8"], 7200)


@jobs.rare
@test
def a_proxy_on_another_computer_serves_two_ranks_of_a_host(hosts):
    output = Offload(hosts, 1, ranks=2).ends_well()
    expect(counted(output, "offloaded") > 0 and not counted(output, "recovered"), output)
    jobs.nothing_left(hosts)


@jobs.rare
@one_instant
def ranks_go_on_when_a_proxy_on_another_computer_is_killed(hosts, dice):
    job = Offload(hosts, 2, dice.choice([0, 5, 50]), ranks=dice.choice([1, 1, 2]))
    job.begin()
    time.sleep(dice.random())
    os.kill(job.proxy(dice.choice(job.dpus)), signal.SIGKILL)
    expect("was killed by signal 9" in job.ends_well(), "nobody said so")


@jobs.rare
@one_instant
def ranks_go_on_when_a_proxy_on_another_computer_falls_silent(hosts, dice):
    job = Offload(hosts, 4, 5)
    job.begin()
    time.sleep(dice.random())
    proxy = job.proxy(dice.choice(job.dpus))
    os.kill(proxy, signal.SIGSTOP)
    # Long enough for the ranks to notice; then it writes, if it can.
    time.sleep(3 + dice.random())
    os.kill(proxy, signal.SIGCONT)
    expect("cut off proxy" in job.ends_well(), "nobody said so")


@jobs.rare
@one_instant
def ranks_go_on_when_the_computer_of_their_proxy_loses_power(hosts, dice):
    job = Offload(hosts, 4, 5)
    job.begin()
    time.sleep(dice.random())
    host = dice.choice(job.dpus)
    host.kill()
    try:
        output = job.ends_well()
        expect("are lost" in output or "cut off proxy" in output, f"nobody said so:\n{output}")
    finally:
        host.boot()
        hosts.start_ssh([host])


@test
def too_few_computers_for_proxies_are_told(hosts):
    file = lab.STATE / "dpus"
    file.write_text("h3\n")
    code, output = jobs.on(hosts.hosts[0], jobs.MPIRUN, "-hosts", "h1,h2", "--dpu-hostfile", file, "true")
    expect(code != 0 and "names 1 computers, where each of 2 hosts needs one" in output, f"{code}\n{output}")
