# SPDX-License-Identifier: BSD-3-Clause
"""DDP and FSDP2 train a small model to the same weights as over gloo."""
import datetime
import sys

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=120))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GLOO = dist.new_group(backend="gloo")


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.BatchNorm1d(300), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 10))


def train(net, steps=6):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        torch.manual_seed(100 * step + RANK)
        inputs, wanted = torch.randn(32, 64), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), wanted).backward()
        optimizer.step()
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in net.state_dict().items()}


def compare(ours, theirs, what, tolerance):
    for (name, a), b in zip(ours.items(), theirs.values(), strict=True):
        if not (torch.equal(a, b) if tolerance == 0 else torch.allclose(a, b, rtol=tolerance, atol=tolerance)):
            print(f"rank {RANK} of {SIZE}: {what}: {name} differs by {(a - b).abs().max()}", file=sys.stderr, flush=True)
            sys.exit(1)


# With two ranks a sum has one order, so the bits are those of gloo. With more each backend has its own order, and errors grow
# over 6 steps of float32.
TOLERANCE = 0.0 if SIZE == 2 else 2e-5


def ddp(group, **more):
    return train(DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.3, **more))


def fsdp(backend):
    net = model()
    mesh = DeviceMesh.from_group(backend, "cpu", mesh=list(range(SIZE)))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net)


if __name__ == "__main__":
    compare(ddp(None), ddp(GLOO), "DDP", TOLERANCE)
    # Without broadcast each rank of DDP keeps its own buffers of batch norm.
    compare(ddp(None, gradient_as_bucket_view=True), ddp(GLOO), "DDP with gradients in buckets", TOLERANCE)
    compare(fsdp(dist.group.WORLD), fsdp(GLOO), "FSDP2", TOLERANCE or 1e-6)

    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    compressed = train(net)
    reference = ddp(GLOO)
    compare({"weight": compressed["module.0.weight"]}, {"weight": reference["module.0.weight"]}, "DDP with gradients in bf16", 2e-2)

    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh=list(range(SIZE)))
    torch.manual_seed(3)
    a, b = torch.randn(8 * SIZE, 40), torch.randn(40, 12)
    product = distribute_tensor(a, mesh, [Shard(0)]) @ distribute_tensor(b, mesh, [Replicate()])
    compare({"product": product.full_tensor()}, {"product": a @ b}, "DTensor", 1e-4)
    columns = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    compare({"product": columns.full_tensor()}, {"product": a @ b}, "DTensor with partial sums", 1e-4)
    dist.barrier()
    dist.destroy_process_group()
