#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Agents of torchrun on two test hosts, or two on one: `hosts.py PYTHON restarts|death|elastic [--deaths N] [--one-host]`. Needs root (tests/hosts/lab.py).

restarts: in each of N lives one rank of four ends, in turns and at several points; the last life ends well.
death: ranks of one host end without restarts, and those on the other host hear of it (--ranks 3 --how sys.exit --per-host 2).
elastic: an agent is killed with its workers, and started again: the job goes on with 2 of 4 ranks, then with 4."""
import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "hosts")]
sys.dont_write_bytecode = True
import lab  # noqa: E402

PATIENCE_S, PAUSE_S = 200, 0.05


class Agent:
    """One torchrun and its workers."""

    def __init__(self, host, python, program, *options, per_host=2):
        words = [python, "-m", "torch.distributed.run", "--nproc-per-node", per_host, "--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:29555",
                 "--monitor-interval", "0.1", *options, *program]
        self.output = open(lab.STATE / f"agent-{time.monotonic_ns()}", "w+", encoding="utf-8", errors="replace")
        self.child = subprocess.Popen(host.words(*words), stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def kill(self):
        """Kills torchrun with all of its workers, which have sessions of their own."""
        for pid in descendants(self.child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait()


def descendants(pid):
    """A process and all that it has started."""
    found = [pid]
    for one in found:
        try:
            found += [int(word) for file in Path(f"/proc/{one}/task").glob("*/children") for word in file.read_text().split()]
        except FileNotFoundError:
            continue
    return found


def stacks(python, agents):
    """Prints what every process of a job that stands still does now."""
    libraries = "libc.so", "libmpi_abi", "outboard", "libfabric", "libtorch_cpu"
    gdb = ["-iex", "set auto-solib-add off", *(word for name in libraries for word in ("-ex", f"sharedlibrary {name}")), "-ex", "thread apply all bt 30"]
    pids = [pid for agent in agents for pid in descendants(agent.child.pid)]
    for way in [Path(python).parent / "py-spy", "dump", "--nonblocking", "--pid"], ["gdb", "-nx", "-batch", *gdb, "-p"]:
        for pid in reversed(pids):
            done = subprocess.run([*way, str(pid)], capture_output=True, text=True, check=False)
            print(f"--- {pid}", done.stdout[-20000:] or done.stderr[-300:], flush=True)


def restarts(hosts, options):
    """Whether a job whose ranks end in N lives ends well."""
    deaths, log = str(options.deaths), lab.STATE / "deaths"
    log.touch()
    os.environ["RESTARTS_NODES"] = str(log)
    words = [options.python, [HERE / "restarts.py", deaths], "--nnodes", "2", "--max-restarts", deaths, "--rdzv-conf", "join_timeout=300"]
    agents = [Agent(host, *words) for host in (hosts[0], hosts[-1])]
    seen, since, looks = -1, time.monotonic(), 0
    while any(agent.child.poll() is None for agent in agents):
        count = len(log.read_text().splitlines())
        if count != seen:
            print(f"{time.monotonic() - since:6.1f} s, then death {count}", flush=True)
            seen, since, looks = count, time.monotonic(), 0
        # The looks are counted, not the time, because the whole test may be stopped for a while during a measurement on
        # this machine.
        looks += 1
        if options.stacks and looks * PAUSE_S > options.stacks:
            stacks(options.python, agents)
            break
        if looks * PAUSE_S > PATIENCE_S:
            break
        time.sleep(PAUSE_S)
    good = all(agent.child.poll() == 0 for agent in agents) and seen == options.deaths
    good = good and sum(agent.said().count(f"life {deaths}: rank") for agent in agents) == 4
    return good, agents


def death(hosts, options):
    """Whether the ranks of the other host learn of a death, although no agent reports it: there are no restarts."""
    words = [options.python, [HERE / "death.py", options.ranks, options.how], "--nnodes", "2", "--max-restarts", "0"]
    agents = [Agent(host, *words, per_host=options.per_host) for host in (hosts[0], hosts[-1])]
    began = time.monotonic()
    while any(agent.child.poll() is None for agent in agents) and time.monotonic() < began + PATIENCE_S:
        time.sleep(PAUSE_S)
    print(f"{time.monotonic() - began:.1f} s", flush=True)
    dead, said = options.ranks.split(","), "".join(agent.said() for agent in agents)
    # An agent may end the other ranks beside one that has ended before they learn of it.
    others = [rank for rank in range(2 * options.per_host) if all(rank // options.per_host != int(one) // options.per_host for one in dead)]
    heard = [rank for rank in others if any(f"rank {rank}: rank {one} (pid" in said for one in dead)]
    good = all(agent.child.poll() == 1 for agent in agents) and "did not end within its timeout" not in said
    return good and heard == others and all(f"rank {rank} of" in said for rank in dead), agents


def elastic(hosts, options):
    """Whether a job goes on with the ranks that are left."""
    log, stop = lab.STATE / "sizes", lab.STATE / "stop"
    log.touch()
    words = [options.python, [HERE / "elastic.py", log, stop], "--nnodes", "1:2", "--max-restarts", "10", "--rdzv-conf", "last_call_timeout=2,join_timeout=300"]

    def grow(size, agents):
        """Waits until the last group has this many ranks."""
        until = time.monotonic() + PATIENCE_S
        while not log.read_text().splitlines()[-1:] or int(log.read_text().splitlines()[-1].split()[0]) != size:
            if time.monotonic() > until or any(agent.child.poll() is not None for agent in agents):
                return False
            time.sleep(PAUSE_S)
        return True

    first = Agent(hosts[0], *words)
    agents = [first]
    good = grow(2, [first])
    for _ in range(options.rounds):
        began = time.monotonic()
        agents.append(Agent(hosts[-1], *words))
        good = good and grow(4, [first, agents[-1]])
        print(f"4 ranks after {time.monotonic() - began:.1f} s: {good}", flush=True)
        began = time.monotonic()
        agents[-1].kill()
        good = good and grow(2, [first])
        print(f"2 ranks after {time.monotonic() - began:.1f} s: {good}", flush=True)
        if not good and options.stacks:
            stacks(options.python, [first])
    if good:
        stop.touch()
        first.child.wait(PATIENCE_S)
    print(log.read_text())
    return good and first.child.returncode == 0, agents


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("test", choices=["restarts", "death", "elastic"])
    parser.add_argument("--deaths", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ranks", default="3", help="which end, with commas")
    parser.add_argument("--how", choices=["sys.exit", "SIGKILL"], default="sys.exit")
    parser.add_argument("--per-host", type=int, default=2)
    parser.add_argument("--one-host", action="store_true", help="both agents on one")
    parser.add_argument("--stacks", type=float, help="print all stacks if nothing happens for so many seconds")
    options = parser.parse_args()
    if not os.environ.get(lab.INSIDE) and (reason := lab.why_not()):
        sys.exit(f"no test hosts: {reason}")
    lab.enter()
    hosts = lab.Lab(1 if options.one_host else 2).hosts
    # Otherwise torch 2.15 lets no agent join a later round, because the agents do not write the address of the store
    # again.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(options.test == "elastic"))
    good, agents = {"restarts": restarts, "death": death, "elastic": elastic}[options.test](hosts, options)
    if not good:
        for agent in agents:
            print(f"=== agent, exit code {agent.child.poll()}\n{agent.said()[-20000:]}")
    for agent in agents:
        if agent.child.poll() is None:
            agent.kill()
    print("ends well" if good else "FAIL")
    return not good


if __name__ == "__main__":
    sys.exit(main())
