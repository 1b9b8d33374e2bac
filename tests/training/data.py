# SPDX-License-Identifier: BSD-3-Clause
"""outboard_training.data.DataLoader gives what torch's gives: samples, order, seeds of the workers, errors; its memory is not used again while a
tensor refers to it, and goes back afterwards. Runs alone, without MPI."""
import gc
import itertools
import os
import random
import signal
import sys
import threading
import warnings

import numpy
import torch
from outboard_training.data import DataLoader
from torch.utils import data


class Drawn(data.Dataset):
    """Each sample draws from all generators that a worker has."""

    def __len__(self):
        return 61

    def __getitem__(self, index):
        return {"index": index, "torch": torch.rand(3, 5), "numpy": numpy.random.rand(4), "python": random.random(), "name": f"sample {index}",
                "pair": (torch.full((2,), index, dtype=torch.int16), torch.tensor(index))}


class Stream(data.IterableDataset):
    """The workers' parts have different lengths."""

    def __iter__(self):
        worker = data.get_worker_info()
        return (torch.tensor([worker.id, number, worker.seed % 1000]) for number in range(7 + 5 * worker.id))


class Bad(Drawn):
    def __getitem__(self, index):
        if index == 20:
            raise KeyError("sample 20 is bad")
        return super().__getitem__(index)


class Killed(Drawn):
    def __getitem__(self, index):
        if index == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Pictures(data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.full((3, 64, 64), float(index)), index


def listed(batch):
    return {"all": torch.stack([one["torch"] for one in batch]).transpose(1, 2), "empty": torch.empty(0, 3), "names": [one["name"] for one in batch],
            "wide": torch.ones(4, dtype=torch.complex64).conj(), "numbers": numpy.arange(5)}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, numpy.ndarray):
        return numpy.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def pair(dataset, epochs=1, **more):
    """The results of both loaders."""
    for kind in data.DataLoader, DataLoader:
        torch.manual_seed(3), random.seed(3), numpy.random.seed(3)
        generator = torch.Generator().manual_seed(11)
        loader = kind(dataset, generator=generator, **more)
        batches = [list(loader) for _ in range(epochs)]
        # The next random numbers depend on what the loader has drawn.
        yield batches, torch.rand(2), torch.rand(2, generator=generator)


def equal(name, dataset, **more):
    (a, *drawn_a), (b, *drawn_b) = pair(dataset, **more)
    assert all(a), name
    assert same(a, b), f"{name}: other batches"
    assert all(map(torch.equal, drawn_a, drawn_b)), f"{name}: other draws afterwards"
    print(f"ok {name}: {sum(map(len, a))} batches", flush=True)


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def memory_is_kept():
    # Few batches are under way, so the slots are used many times. Every batch is kept, and the trainer overwrites each
    # 3rd.
    kept = []
    for number, (pictures, indices) in enumerate(DataLoader(Pictures(), batch_size=4, num_workers=2, prefetch_factor=1)):
        kept.append((pictures, indices))
        if number % 3 == 0:
            pictures.neg_()
    for number, (pictures, indices) in enumerate(kept):
        wanted = indices.float().view(-1, 1, 1, 1).expand_as(pictures) * (-1 if number % 3 == 0 else 1)
        assert torch.equal(indices, torch.arange(4 * number, 4 * number + 4)) and torch.equal(pictures, wanted), f"batch {number} was overwritten"
    # One tensor of a batch is enough to keep all of its memory.
    loader = iter(DataLoader(Pictures(), batch_size=4, num_workers=1, prefetch_factor=1))
    slice_ = next(loader)[0][2, 1]
    for _ in itertools.islice(loader, 30):
        pass
    assert torch.equal(slice_, torch.full((64, 64), 2.0)), "a view was overwritten"
    # A fork has a copy of the tensor. Its end there does not free the slot.
    loader = iter(DataLoader(Pictures(), batch_size=4, num_workers=1, prefetch_factor=1))
    first = next(loader)
    if (child := os.fork()) == 0:
        del first
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    for _ in loader:
        pass
    assert torch.equal(first[0][:, 0, 0, 0], torch.arange(4.0)), "a fork gave a batch's memory back"
    # The memory is used again: the ring has 6 slots.
    places = {batch[0].data_ptr() for batch in DataLoader(Pictures(), batch_size=4, num_workers=1, prefetch_factor=1)}
    assert len(places) <= 6, f"{len(places)} places for 50 batches"
    print("ok memory is kept, and used again", flush=True)


def raises(kind, word, dataset, **more):
    try:
        list(DataLoader(dataset, batch_size=4, **more))
    except kind as error:
        assert word in str(error), f"{word!r} is not in {error}"
        print(f"ok {kind.__name__}: {word}", flush=True)
        return
    raise AssertionError(f"no {kind.__name__}")


def main():
    # A ring without a free slot would hold up the test for ever.
    watch = threading.Timer(240, lambda: (print("hangs", flush=True), os._exit(1)))
    watch.daemon = True
    watch.start()
    # Three workers are more than two cores, of which the loader warns.
    warnings.simplefilter("ignore")
    before = descriptors()
    for workers in 1, 2, 3:
        equal(f"{workers} workers", Drawn(), batch_size=4, shuffle=True, num_workers=workers)
    equal("no worker", Drawn(), batch_size=4, shuffle=True)
    equal("two epochs, workers that stay", Drawn(), epochs=2, batch_size=7, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    equal("a function that collates", Drawn(), batch_size=4, num_workers=2, collate_fn=listed)
    equal("samples without batches", Drawn(), batch_size=None, num_workers=2)
    equal("a stream", Stream(), batch_size=3, num_workers=2, prefetch_factor=3)
    equal("started by spawn", Drawn(), batch_size=16, num_workers=2, multiprocessing_context="spawn")
    memory_is_kept()
    raises(KeyError, "sample 20 is bad", Bad(), num_workers=2)
    raises(RuntimeError, "DataLoader worker (pid", Killed(), num_workers=2)
    raises(RuntimeError, "DataLoader worker (pid", Pictures(), num_workers=1, slot_bytes=1 << 16)
    core = min(os.sched_getaffinity(0))
    loader = DataLoader(Drawn(), num_workers=1, cores={core}, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    assert os.sched_getaffinity(iterator._workers[0].pid) == {core}, "the process is elsewhere"
    del loader, iterator
    assert descriptors() <= before + 1, f"{descriptors()} descriptors, {before} before"
    print("data: all passed")


if __name__ == "__main__":
    sys.exit(main())
