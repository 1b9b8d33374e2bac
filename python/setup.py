# SPDX-License-Identifier: BSD-3-Clause
"""outboard_torch: the c10d backend `outboard` for PyTorch. Built against the torch that is installed, and against the tree of Outboard
that OUTBOARD_HOME names (default: ../build): `OUTBOARD_HOME=/usr/local pip install --no-build-isolation ./python`."""
import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).resolve().parent
tree = Path(os.environ.get("OUTBOARD_HOME", HERE.parent / "build")).resolve()
if not (tree / "lib/liboutboard_dl.so").exists():
    raise SystemExit(f"outboard_torch: {tree} has no lib/liboutboard_dl.so; set OUTBOARD_HOME to an installed tree of Outboard")

setup(
    name="outboard_torch",
    version="0.1.0",
    description="Outboard as a backend of torch.distributed",
    license="BSD-3-Clause",
    packages=["outboard_torch"],
    python_requires=">=3.10",
    install_requires=["torch>=2.14,<2.16"],
    ext_modules=[
        CppExtension(
            "outboard_torch._backend",
            [f"outboard_torch/{name}.cpp" for name in ("backend", "bootstrap", "meeting", "module", "order")],
            include_dirs=[str(tree / "include")],
            library_dirs=[str(tree / "lib")],
            libraries=["outboard_dl"],
            runtime_library_dirs=[str(tree / "lib")],
            extra_compile_args=["-O1", "-std=c++20", "-g0"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
