# SPDX-License-Identifier: BSD-3-Clause
"""OpenSHMEM on test hosts, started by mpirun, srun and Hydra: PEs of other hosts are reached also while they make no calls."""
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor

import wheel
from jobs import MPIRUN, nothing_left, on, rare
from job_tests.running import BIN, HERE, PROGRAMS, ROOT, expect, test

sys.path.append(str(HERE / "shmem"))
import cases

SHMEM = HERE / "shmem"


def compiled(source, *options):
    program = PROGRAMS / f"shmem_{source.stem}"
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    subprocess.run([BIN / "oshcc", "-O1", *options, "-o", program, source], check=True)
    return program


def by_all(hosts, pes, on_hosts, *words):
    """Runs a program by each launcher on the first so many hosts."""
    hosts.start_slurm()
    names = ",".join(it.name for it in hosts.hosts[:on_hosts])
    ways = {"mpirun": [MPIRUN, "-hosts", names, "--map-by", "node", "-n", pes]}
    for pmi in "pmi2", "pmix":
        ways[f"srun {pmi}"] = ["srun", f"--mpi={pmi}", "-K", "-N", on_hosts, "-w", names, "-n", pes, "--overcommit", "--distribution=cyclic"]
    remark = None
    # The runner has fetched it, if it could; the lab has no way out.
    hydra = wheel.CACHE / f"mpich-{wheel.WHEELS['mpich'][0]}/bin/mpiexec"
    if hydra.exists():
        ways["Hydra"] = [hydra, "-hosts", names, "-ppn", 1, "-n", pes]
    else:
        remark = f"not run by Hydra: there is no {hydra}"
    for name, way in ways.items():
        # The heap that edges.c is made for.
        code, output = on(hosts.hosts[0], "env", "SHMEM_SYMMETRIC_SIZE=64m", *way, *words, timeout=300)
        expect(code == 0, f"{words[0].name} by {name}: {code}\n{output}")
        nothing_left(hosts)
    return remark


@test
def shmem_is_answered_by_pes_that_make_no_calls(hosts):
    return by_all(hosts, 4, 2, compiled(SHMEM / "host.c"))


@rare
@test
def the_suite_of_shmem_is_right_on_four_hosts_by_each_launcher(hosts):
    for name, pes, words in [("edges", 4, []), ("kinds", 4, []), ("races", 8, [10]), ("hybrid", 4, ["shmem-mpi"]), ("hybrid", 4, ["mpi-shmem"])]:
        remark = by_all(hosts, pes, 4, compiled(SHMEM / f"{name}.c"), *words)
    texts = list(cases.programs(ROOT, 4, 1))
    sources = [PROGRAMS / f"each{number}.c" for number in range(len(texts))]
    for source, text in zip(sources, texts):
        source.write_text(text)
    with ThreadPoolExecutor(2) as pool:
        programs = list(pool.map(lambda source: compiled(source, "-w", "-O0"), sources))
    for program in programs:
        for part in 1, 2:
            by_all(hosts, 4, 4, program, part)
    return remark
