# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in allocations of Slurm: its real daemons on the test hosts."""
import os, signal

from jobs import MPIRUN, nothing_left, on
from job_tests import running
from job_tests.running import HERE, expect, test

# They are named, since a host that still completes the last job would be passed over for another.
NODES = ["-N", 4, "-w", "h1,h2,h3,h4"]


@test
def mpirun_uses_all_of_an_allocation(hosts):
    hosts.start_slurm()
    first, hello = hosts.hosts[0], running.compile_c(HERE / "faults/hello.c")
    code, output = on(first, "srun", *NODES, "hostname")
    expect((code, sorted(output.split())) == (0, ["h1", "h2", "h3", "h4"]), f"{code}\n{output}")
    tell = 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)'
    code, output = on(first, "salloc", "-Q", *NODES, "--ntasks-per-node=2", MPIRUN, "sh", "-c", tell)
    expect((code, sorted(output.splitlines())) == (0, [f"{r} of 8 on h{r // 2 + 1}" for r in range(8)]), f"{code}\n{output}")
    code, output = on(first, "salloc", "-Q", *NODES, "-n", 8, MPIRUN, "-genv", "OUTBOARD_LAUNCH_FANOUT", 2, "-l", hello)
    expect((code, sorted(output.splitlines())) == (0, [f"[{r}] rank {r} of 8" for r in range(8)]), f"{code}\n{output}")
    nothing_left(hosts)


@test
def a_job_that_slurm_cancels_leaves_nothing(hosts):
    hosts.start_slurm()
    first, exchange = hosts.hosts[0], running.compile_c(HERE / "hosts/exchange.c")
    child = running.start(*first.words("salloc", *NODES, "--ntasks-per-node=2", MPIRUN, exchange, 600))
    running.read_until(child, "exchanging")
    first.command("scancel", "--full", "--user=root")
    code, output = running.finish(child)
    expect(code != 0, f"{code}\n{output}")
    nothing_left(hosts)


@test
def ranks_of_srun_have_proxies(hosts):
    hosts.start_slurm()
    first, offload = hosts.hosts[0], running.compile_c(HERE / "hosts/offload.c")
    given = [f"OUTBOARD_{it}" for it in ("PROXIES=1", "OFFLOAD=on", "STATS=1")]
    for pmi in ["pmix", "pmi2"]:
        command = ["env", *given, "srun", f"--mpi={pmi}", "-K", *NODES, "--ntasks-per-node=2", offload]
        child = running.start(*first.words(*command, 2))
        running.read_until(child, "offloading")
        proxies = {host: [pid for pid, line in host.processes() if "outboard-proxy" in line] for host in hosts.hosts[:4]}
        expect(all(len(pids) == 1 for pids in proxies.values()), f"{pmi}: {proxies}")
        output = running.rest(child)
        expect(child.returncode == 0 and "all right" in output and "proxy carried" in output, f"{pmi}:\n{output}")
        nothing_left(hosts)
        child = running.start(*first.words(*command, 3, 5))
        running.read_until(child, "offloading")
        [victim] = [pid for pid, line in hosts.hosts[1].processes() if "outboard-proxy" in line]
        os.kill(victim, signal.SIGKILL)
        output = running.rest(child)
        expect(child.returncode == 0 and "all right" in output and "on h2) has ended; its ranks go on without it" in output, f"{pmi}:\n{output}")
        nothing_left(hosts)
        child = running.start(*first.words(*command, 600))
        running.read_until(child, "offloading")
        os.kill([pid for pid, line in hosts.hosts[2].processes() if line.startswith(str(offload))][0], signal.SIGKILL)
        running.rest(child)
        expect(child.returncode != 0, f"{pmi}: the job went on")
        nothing_left(hosts)
