# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in allocations of Slurm: its real daemons on the test hosts."""
from jobs import MPIRUN, nothing_left, on
from job_tests import running
from job_tests.running import HERE, expect, test


@test
def mpirun_uses_all_of_an_allocation(hosts):
    hosts.start_slurm()
    first, hello = hosts.hosts[0], running.compile_c(HERE / "faults/hello.c")
    code, output = on(first, "srun", "-N", 4, "hostname")
    expect((code, sorted(output.split())) == (0, ["h1", "h2", "h3", "h4"]), f"{code}\n{output}")
    tell = 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)'
    code, output = on(first, "salloc", "-Q", "-N", 4, "--ntasks-per-node=2", MPIRUN, "sh", "-c", tell)
    expect((code, sorted(output.splitlines())) == (0, [f"{r} of 8 on h{r // 2 + 1}" for r in range(8)]), f"{code}\n{output}")
    code, output = on(first, "salloc", "-Q", "-N", 4, "-n", 8, MPIRUN, "-genv", "OUTBOARD_LAUNCH_FANOUT", 2, "-l", hello)
    expect((code, sorted(output.splitlines())) == (0, [f"[{r}] rank {r} of 8" for r in range(8)]), f"{code}\n{output}")
    nothing_left(hosts)


@test
def a_job_that_slurm_cancels_leaves_nothing(hosts):
    first, exchange = hosts.hosts[0], running.compile_c(HERE / "hosts/exchange.c")
    child = running.start(*first.words("salloc", "-N", 4, "--ntasks-per-node=2", MPIRUN, exchange, 600))
    running.read_until(child, "exchanging")
    first.command("scancel", "--full", "--user=root")
    code, output = running.finish(child)
    expect(code != 0, f"{code}\n{output}")
    nothing_left(hosts)
