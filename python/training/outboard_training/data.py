# SPDX-License-Identifier: BSD-3-Clause
"""A DataLoader whose batches come through a ring in shared memory: the processes beside the trainer write them there, and the trainer's tensors
are that memory. No copy, no file per batch, no descriptor to pass.

    from outboard_training.data import DataLoader
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1, cores={7})

It is `torch.utils.data.DataLoader` in all else: arguments, samples, their order, seeds of the workers, errors. Only the queue between the
processes is another: `Ring`. A batch's memory is used again once none of its tensors is left; who keeps many batches gets copies.
"""
import contextlib
import ctypes
import functools
import io
import mmap
import multiprocessing
import multiprocessing.context
import os
import pickle
import queue
import select
import struct
import weakref
from multiprocessing.reduction import DupFd

import torch
from torch.utils.data._utils.collate import collate as collate_by, default_collate_fn_map

__all__ = ["DataLoader", "Ring", "collate"]

ALIGNMENT = 64
# A notice: the slot, the offset of its pickle, and the pickle's length. It is shorter than PIPE_BUF, so writes and reads of
# several processes do not mix.
FULL, FREE = struct.Struct("<QQQ"), struct.Struct("<Q")


def collate(batch):
    """Collates like `torch.utils.data.default_collate`, which in a worker would make a file in shared memory for each
    tensor."""
    return collate_by(batch, collate_fn_map={**default_collate_fn_map, torch.Tensor: _stack})


def _stack(tensors, *, collate_fn_map=None):
    if any(tensor.layout != torch.strided or tensor.is_nested for tensor in tensors):
        return default_collate_fn_map[torch.Tensor](tensors, collate_fn_map=collate_fn_map)
    return torch.stack(tensors)


class _Into(pickle.Pickler):
    """Pickles all objects but plain tensors, which it copies into a slot."""

    def __init__(self, file, slot):
        super().__init__(file, protocol=5)
        self.slot, self.end = slot, 0

    def persistent_id(self, thing):
        if type(thing) is not torch.Tensor or thing.layout != torch.strided or not thing.is_cpu:
            return None
        if thing.requires_grad or thing.is_quantized or thing.nbytes == 0:
            return None
        at = self.place(thing.nbytes)
        _tensor(self.slot, at, thing.dtype, thing.shape).copy_(thing)
        return at, thing.dtype, thing.shape

    def place(self, length):
        """Reserves this many bytes in the slot."""
        at = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.end = at + length
        if self.end > len(self.slot):
            raise ValueError(f"a batch has more than {len(self.slot)} bytes; give DataLoader a larger slot_bytes")
        return at


class _Outof(pickle.Unpickler):
    def __init__(self, data, slot, is_copied):
        super().__init__(io.BytesIO(data))
        self.slot, self.is_copied = slot, is_copied

    def persistent_load(self, place):
        tensor = _tensor(self.slot, *place)
        return tensor.clone() if self.is_copied else tensor


def _release(owner, held, number, free_in):
    """Frees a slot to which no tensor refers any more. Tensors in a fork of the owner do not count."""
    if os.getpid() == owner:
        held.discard(number)
        # The ring and its processes may be gone.
        with contextlib.suppress(BrokenPipeError):
            free_in.write(FREE.pack(number))


def _tensor(slot, at, dtype, shape):
    return torch.frombuffer(slot, dtype=dtype, count=shape.numel(), offset=at).view(shape)


class Ring:
    """A queue between processes (like `multiprocessing.Queue`) whose tensors lie in slots of shared memory. Two pipes carry the
    numbers of slots: one those of free slots, the other those of full slots. So there is no lock, and a process that dies does
    not stop others."""

    def __init__(self, slots, slot_bytes, views):
        """`views` is the number of slots that the receiver's tensors may occupy. Beyond that the receiver gets copies, so a
        sender always finds a slot if at most `slots - views` batches are under way. Memory is taken only as it is used."""
        self.slots, self.slot_bytes, self.views = slots, slot_bytes, views
        memory = os.memfd_create("outboard-ring", os.MFD_CLOEXEC)
        os.ftruncate(memory, slots * slot_bytes)
        self._open(memory, *os.pipe(), *os.pipe())
        for slot in range(slots):
            self.free_in.write(FREE.pack(slot))

    def _open(self, memory, *pipes):
        self.memory = open(memory, "r+b", buffering=0)
        # Each descriptor is closed when no object refers to its file, because a tensor may outlive the ring.
        self.free_out, self.free_in, self.full_out, self.full_in = (
            open(end, mode, buffering=0) for end, mode in zip(pipes, ("rb", "wb") * 2, strict=True))
        self.map = mmap.mmap(memory, self.slots * self.slot_bytes)
        # The slots to which tensors of this process refer.
        self.held = set()
        self.arrived = select.poll()
        self.arrived.register(self.full_out, select.POLLIN)

    def __getstate__(self):
        files = (self.memory, self.free_out, self.free_in, self.full_out, self.full_in)
        return self.slots, self.slot_bytes, self.views, [DupFd(file.fileno()) for file in files]

    def __setstate__(self, state):
        self.slots, self.slot_bytes, self.views, files = state
        self._open(*(file.detach() for file in files))

    def _slot(self, number):
        return (ctypes.c_char * self.slot_bytes).from_buffer(self.map, number * self.slot_bytes)

    def put(self, thing):
        number, = FREE.unpack(self.free_out.read(FREE.size))
        slot, file = self._slot(number), io.BytesIO()
        try:
            pickler = _Into(file, slot)
            pickler.dump(thing)
            text = file.getbuffer()
            at = pickler.place(len(text))
        except BaseException:
            self.free_in.write(FREE.pack(number))
            raise
        memoryview(slot).cast("B")[at:at + len(text)] = text
        self.full_in.write(FULL.pack(number, at, len(text)))

    def get(self, timeout=None):
        """Raises queue.Empty if nothing came within `timeout` seconds."""
        if not self.arrived.poll(None if timeout is None else max(timeout, 0) * 1000):
            raise queue.Empty
        number, at, length = FULL.unpack(self.full_out.read(FULL.size))
        slot = self._slot(number)
        is_copied = len(self.held) >= self.views
        self.held.add(number)
        weakref.finalize(slot, _release, os.getpid(), self.held, number, self.free_in).atexit = False
        return _Outof(memoryview(slot).cast("B")[at:at + length], slot, is_copied).load()

    # DataLoader also calls these functions of a queue. There is no thread, and nothing to close before the last tensor
    # is gone.
    def cancel_join_thread(self):
        pass

    def close(self):
        pass


class _Context(multiprocessing.context.BaseContext):
    """A context of multiprocessing whose queues are rings."""

    def __init__(self, base, under_way, slot_bytes):
        self.base, self.under_way, self.slot_bytes = base, under_way, slot_bytes

    def Queue(self):  # noqa: N802  (multiprocessing's name)
        # The ring has two more slots, for the notices with which DataLoader ends or resumes a worker.
        return Ring(2 * self.under_way + 4, self.slot_bytes, self.under_way + 2)

    def Event(self):  # noqa: N802
        return self.base.Event()

    def Process(self, **arguments):  # noqa: N802
        return self.base.Process(**arguments)


def _start(cores, then, worker):
    os.sched_setaffinity(0, cores)
    if then:
        then(worker)


class DataLoader(torch.utils.data.DataLoader):
    """`torch.utils.data.DataLoader` over `Ring`. With num_workers=0 it is torch's own."""

    def __init__(self, dataset, *arguments, cores=None, slot_bytes=1 << 30, **more):
        """`cores` are the cores on which the processes run. `slot_bytes` is the most bytes of a batch; only the bytes of
        real batches take memory."""
        super().__init__(dataset, *arguments, **more)
        if self.num_workers == 0:
            return
        if self.collate_fn is torch.utils.data.default_collate:
            self.collate_fn = collate
        if cores:
            self.worker_init_fn = functools.partial(_start, set(cores), self.worker_init_fn)
        base = self.multiprocessing_context or multiprocessing.get_context()
        self.multiprocessing_context = _Context(base, self.prefetch_factor * self.num_workers, slot_bytes)
