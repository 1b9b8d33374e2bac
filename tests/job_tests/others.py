# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other MPIs: the commands that they expect, and the messages that they get."""
import re, subprocess, sys

import wheel
from job_tests.running import HERE, PROGRAMS, ROOT, compile_c, expect, mpirun, test


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


def compiled_for(name, *flags):
    """Compiles tests/faults/hello.c for the MPI of a wheel. Returns the program and that MPI's folder."""
    mpi, program = wheel.unpacked(name), PROGRAMS / f"hello-{name}"
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O1", "-o", program, HERE / "faults/hello.c", f"-I{mpi}/include", f"-L{mpi}/lib", "-lmpi", f"-Wl,-rpath,{mpi}/lib", *flags],
                   check=True)
    return program, mpi


def told(output):
    return [line for line in output.splitlines() if "the library of another MPI" in line]


@test
def a_program_of_another_mpi_is_told():
    program, mpi = compiled_for("openmpi")
    for words in [[program], ["sh", "-c", f"{program}; true"]]:
        code, output = mpirun("-n", 2, *words)
        expect(code == 0 and output.count("rank 0 of 1") == 2, output)
        expect(len(told(output)) == 1 and f"{mpi}/lib/libmpi.so.40" in output and "build/bin/mpicc" in output, output)
    # A single process is a job of one rank under any MPI, and a program without MPI gets no warning.
    expect(not told(mpirun("-n", 1, program)[1]), "told for one process")
    expect(mpirun("-n", 2, "sleep", "0.1") == (0, ""), "told for sleep")
    # mpi4py's wheel would warn of Outboard's mpirun in a job of one rank.
    expect(mpirun("-n", 1, "printenv", "MPI4PY_CHECK_MPIEXEC") == (0, "0\n"), "mpi4py warns")
    expect(mpirun("-n", 2, "sh", "-c", "printenv MPI4PY_CHECK_MPIEXEC || true") == (0, ""), "mpi4py may not warn")
    # An RPATH comes before what mpirun sets. The remedy in the message works.
    program, mpi = compiled_for("mpich", "-Wl,--disable-new-dtags")
    code, output = mpirun("-n", 2, program)
    expect(code == 0 and len(told(output)) == 1 and f"{mpi}/lib/libmpi.so.12" in output, output)
    advice = told(output)[0].partition("-genv LD_PRELOAD ")[2].partition(",")[0]
    expect(advice == str(ROOT / "build/lib/libmpi.so.12"), output)
    code, output = mpirun("-n", 2, "-genv", "LD_PRELOAD", advice, program)
    expect(code == 0 and "rank 1 of 2" in output and not told(output), output)
    # The interpreter loads a library by its full path, as mpi4py does after `pip install mpich`.
    load = f"import ctypes; mpi = ctypes.CDLL('{mpi}/lib/libmpi.so.12'); mpi.MPI_Init(None, None); mpi.MPI_Finalize()"
    code, output = mpirun("-n", 2, sys.executable, "-c", load)
    expect(code == 0 and len(told(output)) == 1 and "MPI4PY_LIBMPI" in output, output)


@test
def the_library_names_itself():
    """The name is as docs/python.md gives it, so that mpi4py's get_vendor can find it."""
    for library, end in [("libmpi_abi.so.1", "standard ABI 1.0"), ("libmpi.so.12", "MPICH ABI (libmpi.so.12)")]:
        ask = f"import ctypes as c; t, n = c.create_string_buffer(8192), c.c_int(); c.CDLL('{ROOT}/build/lib/{library}').MPI_Get_library_version(t, c.byref(n)); print(t.value.decode())"
        said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
        expect(re.match(r"Outboard \d+\.\d+\.\d+,", said) and said.endswith(end), said)


@test
def an_attempt_to_connect_that_was_given_up_leaves_no_message_of_the_program():
    """Some of the attempts end without an accept. The library's own messages for these attempts are not messages of the
    program."""
    code, output = mpirun("-n", 2, compile_c(HERE / "programs/connect.c"), env={"OUTBOARD_CHECK": "2"})
    expect(code == 0 and "never received" not in output, f"exit code {code}\n{output}")
