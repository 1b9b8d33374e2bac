# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py's own tests with all their arrays in sentinel memory, which the CPU cannot touch: tests/mpi4py/run --device starts it in
place of test/main.py, with its arguments. Arrays go to mpi4py by __cuda_array_interface__ and by DLPack, as CUDA memory would."""
import ctypes, os, runpy, sys
from pathlib import Path

import numpy
from mpi4py import MPI

TESTS = Path("test").resolve()
sys.path.insert(0, str(TESTS))
import arrayimpl, dlpackimpl

# The library that mpi4py has loaded already.
library = ctypes.CDLL(os.environ.get("MPI4PY_LIBMPI", "libmpi_abi.so.1"))


def must(name, *arguments):
    if getattr(library, name)(*arguments) != 0:
        raise MemoryError(f"{name} failed")


class OnDevice(arrayimpl.BaseArray):
    """An array in device memory. What the tests read or write of it is copied."""
    TypeMap = arrayimpl.ArrayNumPy.TypeMap

    def __init__(self, arg, typecode, shape=None, readonly=False):
        host = arrayimpl.ArrayNumPy(arg, typecode, shape).array
        self.type, self.shape, self.size, self.readonly = host.dtype, host.shape, host.size, readonly
        memory = ctypes.c_void_p()
        must("MPIX_Device_alloc", ctypes.c_size_t(host.nbytes), ctypes.byref(memory))
        self.address = memory.value
        self.write(host)

    def __del__(self):
        if hasattr(self, "address") and not MPI.Is_finalized():
            must("MPIX_Device_free", ctypes.c_void_p(self.address))

    typecode = property(lambda self: self.type.char)
    itemsize = property(lambda self: self.type.itemsize)
    flat = property(lambda self: self)

    @property
    def array(self):
        """A copy of the memory as a flat array."""
        host = numpy.empty(self.size, self.type)
        must("MPIX_Device_copy", ctypes.c_void_p(host.ctypes.data), ctypes.c_void_p(self.address), ctypes.c_size_t(host.nbytes))
        return host

    def write(self, host):
        must("MPIX_Device_copy", ctypes.c_void_p(self.address), ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes))

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return iter(self.array)

    def __setitem__(self, at, value):
        host = self.array
        host[at] = value
        self.write(host)

    def as_raw(self):
        return self


class ByInterface(OnDevice):
    backend = "sentinel, __cuda_array_interface__"

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "data": (self.address, self.readonly), "typestr": self.type.str, "shape": self.shape}


class ByDLPack(OnDevice):
    backend = "sentinel, DLPack"

    def __dlpack_device__(self):
        return (dlpackimpl.DLDeviceType.kDLCUDA, 0)

    def __dlpack__(self, stream=None):
        managed = dlpackimpl.make_dl_managed_tensor(numpy.empty(self.size, self.type))
        managed.dl_tensor.data = self.address
        managed.dl_tensor.device = dlpackimpl.DLDevice(*self.__dlpack_device__())
        return dlpackimpl.make_py_capsule(managed, owned=True)


# A buffer for MPI_Bsend must be in the host's memory.
attach = MPI.Attach_buffer
MPI.Attach_buffer = lambda memory: attach(numpy.empty_like(memory.array) if isinstance(memory, OnDevice) else memory)

arrayimpl.ArrayBackends[:] = [ByInterface, ByDLPack]
sys.argv[0] = str(TESTS / "main.py")
runpy.run_path(sys.argv[0], run_name="__main__")
