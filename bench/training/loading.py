# SPDX-License-Identifier: BSD-3-Clause
"""Times the DataLoader of outboard_training beside torch's, with the same cores: the trainer's on one, the processes that load on the others.

    tests/training/run -- PYTHON bench/training/loading.py [--workers K]

In turns, medians of 5 epochs. Per batch: the time when the trainer only takes batches, its own processor time, and how long it waits if it
computes meanwhile, which no loading disturbs because it has a core of its own."""
import argparse
import functools
import os
import statistics
import time

import torch
from outboard_training.data import DataLoader
from torch.utils import data

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=1)
chosen = parser.parse_args()
torch.set_num_threads(1)
FIRST, *OTHERS = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {FIRST})


class Ready(data.Dataset):
    """Samples that exist already: the test times how they are delivered."""

    def __init__(self, count, shape):
        self.count, self.sample = count, torch.rand(shape)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.sample, index


class Augmented(Ready):
    """Samples that are moved and mirrored, as ResNet's pictures are."""

    def __getitem__(self, index):
        padded = torch.nn.functional.pad(self.sample, (4, 4, 4, 4))
        down, right = torch.randint(0, 9, (2,)).tolist()
        return padded[:, down:down + 32, right:right + 32].flip(-1), index


def elsewhere(cores, worker):
    os.sched_setaffinity(0, cores)


KINDS = {"outboard": functools.partial(DataLoader, cores=set(OTHERS)),
         "torch": functools.partial(data.DataLoader, worker_init_fn=functools.partial(elsewhere, set(OTHERS)))}


def epoch(loader, computes):
    """Milliseconds per batch: the whole time, the trainer's processor time, and its waits."""
    batches = iter(loader)
    next(batches)
    began, used, waited, count = time.perf_counter(), time.process_time(), 0.0, 0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        count += 1
        batch[0].sum()
        until = time.perf_counter() + computes
        while time.perf_counter() < until:
            pass
    return [seconds / count * 1000 for seconds in (time.perf_counter() - began, time.process_time() - used, waited)]


print(f"{chosen.workers} processes beside the trainer, on {len(OTHERS)} cores; ms per batch: outboard, torch, ratio")
for name, dataset, batch, computes in (
    ("32 pictures of 32 x 32, ready", Ready(6400, (3, 32, 32)), 32, 0.0),
    ("32 pictures of 32 x 32, moved and mirrored", Augmented(3200, (3, 32, 32)), 32, 0.0),
    ("32 pictures of 224 x 224, ready", Ready(1280, (3, 224, 224)), 32, 0.0),
    ("the same, 40 ms of computation each", Ready(640, (3, 224, 224)), 32, 0.04),
):
    loaders = {kind: make(dataset, batch_size=batch, num_workers=chosen.workers, persistent_workers=True) for kind, make in KINDS.items()}
    seen = {kind: [] for kind in KINDS}
    for turn in range(6):
        for kind, loader in loaders.items():
            figures = epoch(loader, computes)
            # In the first turn memory and processes are new.
            if turn:
                seen[kind].append(figures)
    for at, what in enumerate(("time", "trainer's processor", "waits")):
        ours, theirs = (statistics.median(one[at] for one in seen[kind]) for kind in KINDS)
        print(f"{name:45} {what:20} {ours:9.2f} {theirs:9.2f} {ours / theirs:7.2f}", flush=True)
    del loaders
