"""The installed tree: it can be moved, and C++ and CMake find it."""
import os, shutil, subprocess, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, ROOT, expect, mpirun, run, test


@test
def the_tree_can_be_moved():
    with tempfile.TemporaryDirectory() as folder:
        moved = Path(folder) / "a b" / "outboard"
        shutil.copytree(ROOT / "build", moved, symlinks=True)
        program = Path(folder) / "churn"
        subprocess.run([moved / "bin/mpicc", "-O1", "-o", program, HERE / "faults/churn.c"], check=True)
        code, output = run(moved / "bin/mpirun", "-n", 2, "--proxies", 1, program, 100, env={"OUTBOARD_OFFLOAD": "on"})
        expect(code == 0 and "rounds" in output, f"code {code}\n{output}")
        shown = subprocess.run([moved / "bin/mpicc", "-show", "a.c"], capture_output=True, text=True, check=True).stdout
        expect("-lmpi_abi" in shown and "a.c" in shown, shown)
        flags = subprocess.run(["pkg-config", "--libs", "--cflags", "outboard"], capture_output=True, text=True, check=True,
                               env={**os.environ, "PKG_CONFIG_PATH": str(moved / "lib/pkgconfig")}).stdout
        expect("-lmpi_abi" in flags, flags)
    expect(list((ROOT / "build/share/man/man1").glob("mpirun.1")), "no manual page for mpirun")


@test
def cxx_and_cmake():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "a.cc").write_text("#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); }\n")
        subprocess.run([BIN / "mpicxx", "-o", folder / "a", folder / "a.cc"], check=True)
        expect(mpirun("-n", 2, folder / "a")[0] == 0, "a C++ program failed")
        if not shutil.which("cmake"):
            return
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.15)\nproject(a CXX)\nfind_package(MPI REQUIRED)\n"
                                               "add_executable(b a.cc)\ntarget_link_libraries(b MPI::MPI_CXX)\n")
        code, output = run("cmake", "-S", folder, "-B", folder / "b", env={"PATH": f"{BIN}:{os.environ['PATH']}"})
        expect(code == 0 and str(BIN.parent) in output, f"FindMPI does not find us:\n{output}")
