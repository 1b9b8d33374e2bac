# SPDX-License-Identifier: BSD-3-Clause
"""Programs that poll (MPI_Test, MPI_Iprobe, ...): ranks that share cores yield, and a job reports polls that found
nothing."""
import os, re, signal

from job_tests.running import BIN, HERE, compile_c, expect, mpirun, read_until, rest, run, start, test, wait_for


@test
def ranks_that_poll_give_their_core_away():
    """A rank that kept its core for a time slice would poll tens of thousands of times meanwhile."""
    code, output = mpirun("-n", 2 * len(os.sched_getaffinity(0)), compile_c(HERE / "faults/polls.c"), env={"OUTBOARD_STATS": "1"})
    polls = {name: int(many) for name, many in re.findall(r"(MPI_\w+): (\d+) polls a hop", output)}
    expect(code == 0 and len(polls) == 4 and all(many < 1000 for many in polls.values()), f"code {code}:\n{output}")
    for counter in ["vain_iprobe", "vain_improbe", "vain_test", "vain_request_get_status"]:
        expect(re.search(rf"^{counter} +[1-9]", output, re.M), f"no {counter} in:\n{output}")


@test
def a_program_that_polls_in_vain_tells_for_what():
    child = start(BIN / "mpirun", "-n", 2, compile_c(HERE / "faults/polls.c"), "for ever")

    def waiting():
        text = run(BIN / "outboard", "top", "--once", "--job", child.pid)[1]
        return text if text.count("polls in vain") == 2 else None

    wait_for("two polling ranks in `outboard top`", waiting)
    os.kill(child.pid, signal.SIGUSR1)
    said = read_until(child, "rank 1 (pid")
    os.kill(child.pid, signal.SIGTERM)
    said += rest(child)
    for wanted in [r"waits for .* in MPI_Iprobe on MPI_COMM_WORLD: from rank 1, tag 5 \(\d+ polls in vain\)",
                   r"polls in vain so far: .*MPI_Iprobe \d+",
                   r"waits for .* in MPI_Test: from rank 0, tag 6, 4 bytes on MPI_COMM_WORLD \(\d+ polls in vain\)"]:
        expect(re.search(wanted, said), f"no {wanted!r} in:\n{said}")
    expect("does not answer" not in said, said)
