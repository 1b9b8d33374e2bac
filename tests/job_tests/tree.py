# SPDX-License-Identifier: BSD-3-Clause
"""The installed tree: it can be moved, and C++ and CMake find it."""
import os, re, shutil, subprocess, tempfile
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


@test
def wrappers_know_the_options_of_other_mpis():
    def said(*words, code=0, **env):
        got, output = run(*words, env=env)
        expect(got == code, f"{words}: exit code {got}\n{output}")
        return output.strip()
    cc, root = BIN / "mpicc", BIN.parent
    expect("mpicc: compiles" in said(cc, code=1), "no usage")
    expect("mpicc: compiles" in said(cc, "-help"), "no help")
    shown = said(cc, "-show", "-O2", "a.c")
    expect(all(word in shown for word in ["cc ", f"-I{root}/include", "-O2 a.c", "-lmpi_abi"]) and shown == said(cc, "--showme", "-O2", "a.c"), shown)
    for option in ("-compile_info", "--showme:compile"):
        expect("include" in said(cc, option) and "-lmpi_abi" not in said(cc, option), said(cc, option))
    for option in ("-link_info", "--showme:link", "-showme:link"):
        expect("-lmpi_abi" in said(cc, option), said(cc, option))
    expect(said(cc, "--showme:incdirs") == f"{root}/include" and said(cc, "--showme:libs") == "mpi_abi", "folders")
    expect(re.search(r"outboard \d", said(cc, "--showme:version")), said(cc, "--showme:version"))
    for words, env in [(["-cc=gcc-x"], {}), (["-config=gcc-x"], {}), ([], {"MPICH_CC": "gcc-x"}), ([], {"OMPI_CC": "gcc-x"}),
                       ([], {"OUTBOARD_CC": "gcc-x", "MPICH_CC": "other"})]:
        expect(said(cc, *words, "-show", **env).startswith("gcc-x "), f"{words} {env}")
    expect(said(BIN / "mpicxx", "-cxx=g-x", "-cc=other", "-show").startswith("g-x "), "-cxx=")
    expect(said(BIN / "mpicxx", "-show", MPICH_CC="other", OMPI_CXX="g-x").startswith("g-x "), "OMPI_CXX")
    # Questions to the compiler link no library.
    said(cc, "-v")
    said(cc, "-dumpmachine")
    with tempfile.TemporaryDirectory() as folder:
        said("sh", "-c", f"echo 'int main(void) {{ return 0; }}' | {cc} -x c -o {folder}/a - && {folder}/a")


@test
def names_that_mpi_3_removed_have_successors():
    calls = {"MPI_Address(0, 0)": "MPI_Get_address", "MPI_Errhandler_create(0, 0)": "MPI_Comm_create_errhandler",
             "MPI_Errhandler_get(MPI_COMM_WORLD, 0)": "MPI_Comm_get_errhandler", "MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN)": "MPI_Comm_set_errhandler",
             "MPI_Type_extent(MPI_INT, 0)": "MPI_Type_get_extent", "MPI_Type_hindexed(0, 0, 0, MPI_INT, 0)": "MPI_Type_create_hindexed",
             "MPI_Type_hvector(0, 0, 0, MPI_INT, 0)": "MPI_Type_create_hvector", "MPI_Type_lb(MPI_INT, 0)": "MPI_Type_get_extent",
             "MPI_Type_struct(0, 0, 0, 0, 0)": "MPI_Type_create_struct", "MPI_Type_ub(MPI_INT, 0)": "MPI_Type_get_extent"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.c"
        file.write_text("#include <mpi.h>\nvoid f(void)\n{\n" + "".join(f"    {call};\n" for call in calls) + "}\n")
        for compiler, language in [("mpicc", "c"), ("mpicxx", "c++")]:
            code, output = run(BIN / compiler, "-x", language, "-c", "-o", file.with_suffix(".o"), file)
            expect(code != 0, "it compiles")
            for call, successor in calls.items():
                name = call.split("(")[0]
                expect(f"{name} was removed by MPI-3.0: write {successor}" in output, f"{name}: {output}")
        file.write_text("#include <mpi.h>\nMPI_Datatype f(void) { return MPI_UB; }\n")
        code, output = run(BIN / "mpicc", "-c", "-o", file.with_suffix(".o"), file)
        expect(code != 0 and ("MPI_Type_create_resized" in output or "undeclared" in output), output)
        # Programs that do not use them get no message.
        file.write_text("#include <mpi.h>\nint main(void) { return 0; }\n")
        code, output = run(BIN / "mpicc", "-Wall", "-Wextra", "-Wundef", "-pedantic", "-Wstrict-prototypes", "-Werror", "-c", "-o", file.with_suffix(".o"), file)
        expect(code == 0, output)


@test
def install_and_uninstall():
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "p"
        (prefix / "lib").mkdir(parents=True)
        (prefix / "lib/libother.so").write_text("")
        subprocess.run([ROOT / "tools/install-tree", "--split", ROOT / "target/release", prefix], check=True)
        # The debug information is installed beside it, and found by a link with its checksum.
        subprocess.run([ROOT / "tools/install-tree", "--debug", ROOT / "target/release", prefix], check=True)
        whole, library = (ROOT / "target/release/libmpi_abi.so").stat().st_size, prefix / "lib/libmpi_abi.so.1"
        expect(library.stat().st_size * 2 < whole, f"{library.stat().st_size} of {whole} bytes without debug information")
        link = run("readelf", "--string-dump=.gnu_debuglink", library)[1]
        expect(library.name + ".debug" in link and (prefix / "lib/.debug" / f"{library.name}.debug").exists(), link)
        for name in ("libmpich.so.12", "libmpich.so"):
            expect(os.readlink(prefix / "lib" / name) == "libmpi.so.12", name)
        for package in ("mpi", "mpich", "outboard"):
            flags = run("pkg-config", "--libs", package, env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")})[1]
            expect("-lmpi_abi" in flags and "rpath" not in flags, f"{package}: {flags}")
        flags = run("pkg-config", "--libs", "outboard-fort", env={"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")})[1]
        expect("-lmpifort_abi" in flags and "-lmpi_abi" in flags, flags)
        licences = (prefix / "share/doc/outboard/THIRD-PARTY").read_text()
        own = prefix / "lib/outboard/libfabric.so.1"
        if (ROOT / "target/release/libfabric.so.1").exists():
            fabric = run(prefix / "bin/outboard", "info", "--fabric")[1]
            expect(own.exists() and "generic libfabric" in licences, licences[:2000])
            expect(str(own) in fabric or "the system's" in fabric, fabric)
        expect("cargo rustix" in licences and "Permission is hereby granted" in licences, licences[:2000])
        complete = f"source '{prefix}/share/bash-completion/completions/mpirun'; COMP_WORDS=(mpirun --bind-); COMP_CWORD=1; _mpirun mpirun --bind- mpirun; echo ${{COMPREPLY[*]}}"
        expect("--bind-to" in run("bash", "-c", complete)[1], "bash does not complete --bind-to")
        for page in ("mpicc.1", "mpicxx.1", "mpirun.1", "outboard.1"):
            expect((prefix / "share/man/man1" / page).exists(), page)
        for page in ("MPI_Send.3", "MPI_Send_c.3", "MPI_T_init_thread.3"):
            expect((prefix / "share/man/man3" / page).exists(), page)
        expect(len(list(prefix.glob("share/modulefiles/outboard/*"))) == 1, "no modulefile")
        # Links in installed pages lead to installed files, and so do paths that begin with PREFIX/.
        pages = list((prefix / "share/doc/outboard").rglob("*.md"))
        expect(len(pages) > 8, pages)
        for page in pages:
            text = page.read_text()
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
                expect((page.parent / link).exists(), f"{page.relative_to(prefix)}: {link} is not there")
            for path in re.findall(r"PREFIX/([\w./-]*\w)", text):
                expect((prefix / path).exists(), f"{page.relative_to(prefix)}: PREFIX/{path} is not there")
        subprocess.run([ROOT / "tools/install-tree", "--remove", prefix], check=True)
        left = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir() or path.is_symlink()]
        expect(left == ["lib/libother.so"] and not list(prefix.rglob("outboard")), left)


@test
def old_fortran_with_buffers_of_several_types_compiles():
    if not shutil.which("gfortran"):
        return "no gfortran"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "old.f", Path(folder) / "old"
        source.write_text("""      program old
      include 'mpif.h'
      integer n, m, w, ierr
      double precision x, y
      call mpi_init(ierr)
      n = 3
      x = 0.5d0
      w = MPI_COMM_WORLD
      call mpi_allreduce(n, m, 1, MPI_INTEGER, MPI_SUM, w, ierr)
      call mpi_allreduce(x,y,1,MPI_DOUBLE_PRECISION,MPI_SUM,w,ierr)
      if (m .ne. 6 .or. y .ne. 1d0) call mpi_abort(w, 3, ierr)
      call mpi_finalize(ierr)
      end
""")
        code, output = run(BIN / "mpifort", "-o", program, source)
        expect(code == 0, f"mpifort refuses it:\n{output}")
        code, output = mpirun("-n", 2, program)
        expect(code == 0, f"exit code {code}\n{output}")
        for words in (["-show", "old.f"], ["--showme:compile"]):
            code, output = run(BIN / "mpifort", *words)
            expect("-fallow-argument-mismatch" in output, f"{words}: {output}")
        # A compiler that is not GNU's, or that does not exist, gets no such option.
        for other in ("gfortran-no-such", "echo"):
            code, output = run(BIN / "mpifort", "-show", "old.f", env={"OUTBOARD_FC": other})
            expect(code == 0 and "mismatch" not in output, f"{other}: {output}")
