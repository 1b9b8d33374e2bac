"""What programs of other MPIs expect, and what they are told."""
from job_tests.running import HERE, compile_c, expect, mpirun, test


@test
def what_is_taken_leniently_is_said_once():
    program = compile_c(HERE / "programs/lenient.c")
    code, output = mpirun("-n", 2, program, env={"OUTBOARD_CHECK": "1"})
    expect(code == 0, output)
    for word in ["characters", "MPI_DATATYPE_NULL", "amode", "error code"]:
        said = [line for line in output.splitlines() if word in line and "Said once" in line]
        expect(len(said) == 2, f"{word}: {output}")
    code, output = mpirun("-n", 2, program)
    expect(code == 0 and "Said once" not in output, output)
