# SPDX-License-Identifier: BSD-3-Clause
"""Times training with a checkpoint each 10 steps: none, torch.save at rank 0, dcp.save, dcp.async_save (by thread and by process), and ours.

    tests/training/run -- mpirun -n 1 PYTHON bench/training/checkpoints.py FOLDER [--model resnet34] [--batch 8] [--rounds 5]

In turns, in one job, with all cores for each. Of the slowest rank, medians of the rounds, in milliseconds: what the call of a save takes (which
training waits for); a step, with saves and the wait for the last one's end spread over the steps; a step without that end."""
import argparse
import importlib.util
import pathlib
import shutil
import statistics
import sys
import time
import warnings

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from outboard_training.checkpoint import Checkpoints
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

EVERY = 10


class Kind:
    """One kind of checkpoint: how it saves, how the last save ends, and what is closed at the end."""

    def __init__(self, folder):
        self.folder, self.count, self.last = folder, 0, None

    def begin(self, optimizer):
        pass

    def save(self, state):
        pass

    def end(self):
        if self.last is not None:
            self.last.result()

    def path(self):
        self.count += 1
        return self.folder / f"step-{self.count % 2}"


class TorchSave(Kind):
    def save(self, state):
        if dist.get_rank() == 0:
            self.folder.mkdir(exist_ok=True)
            torch.save(state, self.path())


class Stock(Kind):
    def save(self, state):
        dcp.save(state, checkpoint_id=self.path())


class StockAsync(Kind):
    type = AsyncCheckpointerType.THREAD

    def begin(self, optimizer):
        self.group = dist.new_group(backend="gloo")

    def save(self, state):
        if self.last is not None:
            # This kind allows one save at a time.
            self.last.result()
        self.last = dcp.async_save(state, checkpoint_id=self.path(), process_group=self.group, async_checkpointer_type=self.type)


class StockProcess(StockAsync):
    type = AsyncCheckpointerType.PROCESS


class Ours(Kind):
    def begin(self, optimizer):
        self.saves = Checkpoints(self.folder)
        self.saves.attach(optimizer)

    def save(self, state):
        self.count += 1
        self.saves.save(state, self.count)

    def end(self):
        self.saves.wait()


KINDS = {"no checkpoint": Kind, "torch.save at rank 0": TorchSave, "dcp.save": Stock, "dcp.async_save, thread": StockAsync,
         "dcp.async_save, process": StockProcess, "outboard_torch": Ours}


def example():
    """Imports the example, for its models."""
    path = pathlib.Path(__file__).resolve().parents[2] / "examples/training/train.py"
    # The example imports the files beside it.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="resnet34")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], choices=[*KINDS])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("outboard")
    rank, size = dist.get_rank(), dist.get_world_size()
    train = example()
    torch.manual_seed(0)
    net = DistributedDataParallel(train.MODELS[chosen.model]())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    inputs, wanted = torch.rand(chosen.batch, 3, 32, 32), torch.arange(chosen.batch) % 10

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(net(inputs), wanted).backward()
        optimizer.step()

    step()
    kinds = {name: KINDS[name](chosen.folder / name.replace(" ", "-")) for name in chosen.kinds}
    for kind in kinds.values():
        kind.begin(optimizer)
    seen = {name: [] for name in kinds}
    for turn in range(chosen.rounds + 1):
        for name, kind in kinds.items():
            dist.barrier()
            began, saving = time.perf_counter(), 0.0
            # The save comes in the middle of the steps.
            for number in range(EVERY):
                step()
                if number == EVERY // 2:
                    before = time.perf_counter()
                    model, state = get_state_dict(net, optimizer)
                    kind.save({"model": model, "optimizer": state})
                    saving = time.perf_counter() - before
            steps = time.perf_counter() - began
            kind.end()
            took = torch.tensor([saving, (time.perf_counter() - began) / EVERY, steps / EVERY]) * 1000
            dist.all_reduce(took, dist.ReduceOp.MAX)
            # In the first turn files, processes and plans are new.
            if turn:
                seen[name].append(took.tolist())
    if rank == 0:
        state = sum(tensor.nbytes for tensor in net.state_dict().values()) + sum(
            value.nbytes for one in optimizer.state.values() for value in one.values() if isinstance(value, torch.Tensor))
        print(f"{chosen.model}, {state / 1e6:.0f} MB, {size} ranks; ms\n{'':26} {'save':>9} {'step':>9} {'without end':>12}")
        for name, figures in seen.items():
            saving, whole, steps = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"{name:26} {saving:9.1f} {whole:9.1f} {steps:12.1f}")
        print(f"steps after ours waited {kinds['outboard_torch'].saves.stalled * 1000:.1f} ms in all" if "outboard_torch" in kinds else "")
    if "outboard_torch" in kinds:
        kinds["outboard_torch"].saves.close()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(chosen.folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
