# SPDX-License-Identifier: BSD-3-Clause
"""A model trained with DDP or FSDP2 saves beside its training; the run is killed and goes on from the newest checkpoint: the weights are those
of a run that was not. Stock dcp.load reads what was written. The writer process may die at any time.

    checkpoints.py FOLDER STEPS [--die-at STEP] [--fsdp]   prints a hash of the weights after STEPS"""
import argparse
import hashlib
import os
import signal
import subprocess
import sys

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from outboard_training.checkpoint import Checkpoints, Failed
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("steps", type=int)
parser.add_argument("--die-at", type=int)
parser.add_argument("--kill-writer-at", type=int)
parser.add_argument("--fsdp", action="store_true")
chosen = parser.parse_args()

dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
# FSDP does not share buffers between ranks, and a checkpoint has those of the first rank.
norm = nn.LayerNorm(600) if chosen.fsdp else nn.BatchNorm1d(600)
net = nn.Sequential(nn.Linear(200, 600), norm, nn.ReLU(), nn.Dropout(0.2), nn.Linear(600, 10))
if chosen.fsdp:
    net = fully_shard(net, mesh=DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh=list(range(size))))
else:
    net = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(1000 + rank)


def state():
    model, optim = get_state_dict(net, optimizer)
    # Each rank has generators of its own.
    return {"model": model, "optim": optim, f"random-{rank}": torch.get_rng_state()}


def step_once():
    optimizer.zero_grad()
    inputs = torch.randn(64, 200)
    nn.functional.cross_entropy(net(inputs), inputs[:, :10].argmax(1)).backward()
    optimizer.step()


def weights():
    """A hash of everything that training has changed."""
    model, optim = get_state_dict(net, optimizer)
    values = [model[name] for name in sorted(model)]
    values += [value for name in sorted(optim["state"]) for _, value in sorted(optim["state"][name].items())]
    digest = hashlib.sha256()
    for value in values:
        value = value.full_tensor() if isinstance(value, DTensor) else value
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


saves = Checkpoints(chosen.folder)
saves.attach(optimizer)
# Making this state gives the optimizer its own state, so the number is loaded into a state that exists.
loaded = state()
begin = saves.load(loaded) or 0
if begin:
    set_state_dict(net, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"])
    torch.set_rng_state(loaded[f"random-{rank}"])
for step in range(begin + 1, chosen.steps + 1):
    step_once()
    if step % 2 == 0:
        saves.save(state(), step)
    if chosen.kill_writer_at == step:
        os.kill(saves.writer.process.pid, signal.SIGKILL)
    if chosen.die_at == step and rank == size - 1:
        saves.wait()
        os.kill(os.getpid(), signal.SIGKILL)
try:
    saves.wait()
except Failed as error:
    assert chosen.kill_writer_at and "has died" in str(error), error
dist.barrier()
print(f"rank {rank}: began at {begin}, stalled {saves.stalled * 1000:.1f} ms, weights {weights()}", flush=True)

# The stock reader finds the same values in the last checkpoint.
if chosen.steps % 2 == 0:
    before, read = weights(), state()
    with torch.no_grad():
        for value in read["model"].values():
            value.zero_()
    assert weights() != before
    dcp.load(read, checkpoint_id=f"{chosen.folder}/step-{chosen.steps}")
    set_state_dict(net, optimizer, model_state_dict=read["model"], optim_state_dict=read["optim"])
    # The buffers of DDP's other ranks are their own until the next step.
    assert weights() == before or rank > 0, "dcp.load reads something else"
saves.close()
dist.barrier()
if rank == 0:
    # The command makes one file of the checkpoint, with the names of the model.
    subprocess.run([sys.executable, "-m", "outboard_training.export", chosen.folder, f"{chosen.folder}/model.safetensors"], check=True)
    exported = load_file(f"{chosen.folder}/model.safetensors")
    model, _ = get_state_dict(net, optimizer) if not chosen.fsdp else (None, None)
    assert "0.weight" in exported and exported["0.weight"].shape == (600, 200), exported.keys()
    for name, tensor in (model or {}).items():
        assert torch.equal(exported.pop(name), tensor), f"{name} is exported otherwise"
dist.barrier()
dist.destroy_process_group()
