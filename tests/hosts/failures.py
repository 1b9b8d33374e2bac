# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong in the middle of a job on 4 hosts x 2 ranks, at instants that come from a seed. Whatever it is: no hang, no wrong
data, and nothing left behind."""
import os, random, signal, socket, subprocess, time
from pathlib import Path

import jobs, lab
from job_tests import running
from job_tests.running import HERE, chosen, expect, test

EXCHANGE = HERE / "hosts/exchange.c"
# mpirun notices within this many seconds that a host is gone (OUTBOARD_LAUNCH_SILENCE_MS, and what ending takes).
NOTICED_S = 90


class Exchange:
    """A running `exchange` on h1 to h4, after its first round and a while."""

    def __init__(self, hosts, dice, seconds, *options):
        self.hosts = hosts.hosts[:4]
        self.child = jobs.start(self.hosts[0], jobs.MPIRUN, "-hosts", jobs.FOUR, *options, running.compile_c(EXCHANGE),
                                seconds)
        running.read_until(self.child, "exchanging")
        time.sleep(dice.random())

    def ranks(self, host):
        """The ranks on a host, by the number of their process."""
        return [pid for pid, line in host.processes() if line.startswith(str(running.PROGRAMS / "exchange"))]

    def end(self, timeout=running.HANGS):
        """Waits for its end: (exit code, output)."""
        try:
            code = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            for host in [host for host in self.hosts if host.is_up()]:
                [os.kill(pid, signal.SIGKILL) for pid, _ in host.processes()]
            raise AssertionError(f"still running after {timeout} s; it said:\n{self.child.stdout.read()}") from None
        output = self.child.stdout.read()
        expect("wrong data" not in output, f"wrong data:\n{output}")
        return code, output

    def ends_well(self):
        code, output = self.end()
        expect(code == 0 and "all right" in output, f"{code}\n{output}")
        return output

    def ends_because(self, *sentences):
        code, output = self.end(NOTICED_S)
        said = [line for line in output.splitlines() if line.startswith("mpirun") and all(it in line for it in sentences)]
        expect(code not in (0, None) and len(said) == 1, f"{code}; not one line with {sentences}:\n{output}")


def at_instants(hosts, what):
    """Runs a failure once for each seed; afterwards nothing is left, and the hosts are as before."""
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        try:
            what(hosts, random.Random(seed))
            jobs.nothing_left(hosts)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return f"seeds {chosen.seed} to {chosen.seed + chosen.seeds - 1}"


def one_instant(function):
    """A test that meets a failure at one instant for each seed."""
    def at_each(hosts):
        return at_instants(hosts, function)
    at_each.__name__ = function.__name__
    return test(at_each)


@one_instant
def a_killed_rank_ends_the_job(hosts, dice):
    job, host = Exchange(hosts, dice, 600), dice.choice(hosts.hosts[:4])
    os.kill(dice.choice(job.ranks(host)), signal.SIGKILL)
    job.ends_because(f"{host}", "rank", "was killed by signal 9")


@one_instant
def a_host_that_loses_power_ends_the_job(hosts, dice):
    job, host = Exchange(hosts, dice, 600), dice.choice(hosts.hosts[1:4])
    host.kill()
    try:
        job.ends_because(f"host {host}")
    finally:
        host.boot()
        hosts.start_ssh([host])


@one_instant
def a_link_that_is_cut_for_two_seconds_delays_the_job(hosts, dice):
    job, host = Exchange(hosts, dice, 6), dice.choice(hosts.hosts[:4])
    host.cut()
    time.sleep(2)
    host.mend()
    job.ends_well()


@jobs.rare
@one_instant
def a_link_that_is_cut_for_ever_ends_the_job(hosts, dice):
    job, host = Exchange(hosts, dice, 600), dice.choice(hosts.hosts[1:4])
    host.cut()
    try:
        job.ends_because(f"host {host}")
        # Its agent ends by itself; nobody can tell it.
        jobs.nothing_left(hosts)
    finally:
        host.mend()


@one_instant
def one_percent_loss_only_costs_time(hosts, dice):
    for host in hosts.hosts[:4]:
        host.lose(1)
    try:
        Exchange(hosts, dice, 2).ends_well()
    finally:
        for host in hosts.hosts[:4]:
            host.lose(0)


@test
def a_firewall_between_two_hosts_is_told(hosts):
    one, two = hosts.hosts[:2]
    two.close(True)
    try:
        job = jobs.start(one, jobs.MPIRUN, "-hosts", f"{one},{two}", "-n", 2, running.compile_c(EXCHANGE), 60)
        output = job.communicate(timeout=NOTICED_S)[0]
    finally:
        two.close(False)
    told = [line for line in output.splitlines() if "has lost rank" in line]
    expect(job.returncode != 0 and told, f"{job.returncode}\n{output}")
    ends = [("rank 0 on h1 by tcp", "rank 1 on host number 1 at 10.88.0.2:"), ("rank 1 on h2 by tcp", "rank 0 on host number 0 at 10.88.0.1:")]
    expect(all(any(here in line and there in line for here, there in ends) for line in told), output)
    jobs.nothing_left(hosts)


def connect_and_talk(address, port, dice):
    """Program text for a host: connections that say nothing, nonsense, or half of something, and stay open a while."""
    return f"""
import random, socket, time
dice, held = random.Random({dice.random()}), []
for _ in range(20):
    held.append(socket.create_connection(("{address}", {port}), 5))
    held[-1].settimeout(0.1)
    try:
        held[-1].sendall(dice.randbytes(dice.choice([0, 1, 16, 1000, 100000])))
    except OSError:
        pass
time.sleep(dice.random())
"""


@one_instant
def a_stranger_changes_nothing(hosts, dice):
    stranger = running.PROGRAMS / "stranger"
    lab.command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", stranger, HERE / "hosts/stranger.c", "-lfabric")
    job, other = Exchange(hosts, dice, 5, "-genv", "OUTBOARD_STATS", 1), hosts.hosts[4]
    host = dice.choice(job.hosts)
    port = dice.choice([int(line.split()[4].rsplit(":", 1)[1]) for line in jobs.listening(host)])
    other.command("python3", "-c", connect_and_talk(host.address, port, dice))
    sent = int(other.command(stranger, host.address, port, dice.randrange(1000)).split()[0])
    output = job.ends_well()
    expect(sent == 0 or "net_refused" in output, f"{sent} packets of a stranger were not counted\n{output}")
