# SPDX-License-Identifier: BSD-3-Clause
"""Sessions in jobs in which not all ranks call MPI, or not at the same time: MPI_Session_init is local (MPI 5.0,
section 11.3.1)."""
import tempfile
from pathlib import Path

from job_tests.running import HERE, compile_c, expect, mpirun, test


def late(what, expected, *options):
    with tempfile.TemporaryDirectory() as folder:
        code, output = mpirun("-n", 3, *options, compile_c(HERE / "faults/late.c"), what, Path(folder) / "here")
    expect(code == 0 and sorted(output.splitlines()) == expected, f"exit code {code}\n{output}")


@test
def a_session_waits_for_no_rank():
    late("never", ["rank 0: right"])
    late("late", [f"rank {rank}: right" for rank in range(3)])


@test
def ranks_in_init_go_on_with_their_sessions():
    for options in [], ["-genv", "OUTBOARD_CMA", "off"]:
        late("traffic", [f"rank {rank}: right" for rank in range(3)], *options)


@test
def a_forked_child_is_no_rank():
    code, output = mpirun("-n", 2, compile_c(HERE / "faults/forks.c"), env={"OUTBOARD_STATS": "1"})
    ends = [line for line in output.splitlines() if line.startswith("rank")]
    expect(code == 0 and sorted(ends) == ["rank 0: 0", "rank 1: 7"], f"exit code {code}\n{output}")
