# Outboard for Spack, from a checkout of this repository:
#     spack repo add deploy/spack
#     spack develop --path $PWD outboard@main && spack install outboard     (or spack dev-build outboard@main)
# SPDX-License-Identifier: BSD-3-Clause
from spack.package import *


class Outboard(MakefilePackage):
    """An MPI library whose communication runs beside the program, with the MPI-5.0 standard ABI and that of MPICH."""

    license("BSD-3-Clause")

    version("main")

    variant("fortran", default=True, description="modules for the Fortran compiler")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("rust@1.90:", type="build")
    depends_on("gmake", type="build")
    depends_on("python@3.8:", type="build")
    # Loaded at run time, for several hosts.
    depends_on("libfabric", type="run")

    provides("mpi@:5.0")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    def build(self, spec, prefix):
        Executable("cargo")("build", "--release", "--workspace", "--locked")

    def install(self, spec, prefix):
        Executable("tools/install-tree")("target/release", prefix)

    def setup_run_environment(self, env):
        env.set("MPI_HOME", self.prefix)
        self.name_wrappers(env)

    def setup_dependent_build_environment(self, env, dependent_spec):
        self.name_wrappers(env)
        # The wrappers call Spack's compilers.
        env.set("OUTBOARD_CC", spack_cc)
        env.set("OUTBOARD_CXX", spack_cxx)
        env.set("OUTBOARD_FC", spack_fc)

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = self.prefix.bin.mpicc
        self.spec.mpicxx = self.prefix.bin.mpicxx
        self.spec.mpifc = self.prefix.bin.mpifort
        self.spec.mpif77 = self.prefix.bin.mpif77

    def name_wrappers(self, env):
        for variable, name in [("MPICC", "mpicc"), ("MPICXX", "mpicxx"), ("MPIFC", "mpifort"), ("MPIF77", "mpif77"), ("MPIF90", "mpif90")]:
            env.set(variable, join_path(self.prefix.bin, name))

    @property
    def libs(self):
        names = ["libmpi_abi"]
        if "fortran" in self.spec.last_query.extra_parameters:
            names.insert(0, "libmpifort_abi")
        return find_libraries(names, root=self.prefix, shared=True, recursive=True)
