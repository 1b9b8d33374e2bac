# SPDX-License-Identifier: BSD-3-Clause
"""outboard_torch: the c10d backend `outboard` for PyTorch. Built against the torch that is installed, and against the tree of Outboard
that OUTBOARD_HOME names (default: ../build): `OUTBOARD_HOME=/usr/local pip install --no-build-isolation ./python`.

For a wheel (tools/torch-wheels) OUTBOARD_TORCH_HEADERS names the headers of another torch, and OUTBOARD_TORCH its minor version."""
import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).resolve().parent
tree = Path(os.environ.get("OUTBOARD_HOME", HERE.parent / "build")).resolve()
if not (tree / "lib/liboutboard_dl.so").exists():
    raise SystemExit(f"outboard_torch: {tree} has no lib/liboutboard_dl.so; set OUTBOARD_HOME to an installed tree of Outboard")
version, torch, libraries = "0.1.0", os.environ.get("OUTBOARD_TORCH"), str(tree / "lib")
requires, headers = ["torch>=2.11,<2.16"], []
if torch:
    # The wheel of Outboard puts its libraries into the same environment: into lib, above python3.N/site-packages/outboard_torch.
    requires, libraries = [f"torch=={torch}.*", f"outboard=={version}"], "$ORIGIN/../../.."
    # These come before the headers of the torch that runs this script. The libraries have the same names in both, and the
    # linker only records their names.
    headers = [f"{os.environ['OUTBOARD_TORCH_HEADERS']}/{folder}" for folder in ("", "torch/csrc/api/include")]

setup(
    name="outboard_torch",
    version=f"{version}+torch{torch}" if torch else version,
    description="Outboard as a backend of torch.distributed",
    license="BSD-3-Clause",
    packages=["outboard_torch"],
    py_modules=["outboard_torch_autoload"],
    entry_points={"torch.backends": ["outboard = outboard_torch_autoload:register"]},
    python_requires=">=3.10",
    install_requires=requires,
    ext_modules=[
        CppExtension(
            "outboard_torch._backend",
            [f"outboard_torch/{name}.cpp" for name in ("backend", "bootstrap", "ends", "meeting", "module", "order")],
            include_dirs=[str(tree / "include"), *headers],
            library_dirs=[str(tree / "lib")],
            libraries=["outboard_dl"],
            runtime_library_dirs=[libraries],
            extra_compile_args=["-O1", "-std=c++20", "-g0"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
