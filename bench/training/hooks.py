# SPDX-License-Identifier: BSD-3-Clause
"""Times a step of DDP with communication hooks, over Outboard and gloo in one job: none, torch's bf16_compress_hook, and the hierarchical one.

    tests/training/run -- mpirun -n 4 [-hosts A,B --map-by node] PYTHON bench/training/hooks.py

25 MB of gradients in buckets of 4 MB. The ways take turns; each figure is the median of 7 rounds, the slowest rank's."""
import statistics
import time

import outboard_torch
import torch
import torch.distributed as dist
from outboard_torch.hooks import Nodes, hierarchical
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("outboard")
ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
whose = [None] * dist.get_world_size()
dist.all_gather_object(whose, outboard_torch.node())
WAYS = {
    "outboard": (ours, None, None),
    "outboard, bf16_compress_hook": (ours, ours, bf16_compress_hook),
    "outboard, hierarchical": (ours, Nodes(), hierarchical),
    "outboard, hierarchical, dtype=None": (ours, Nodes(dtype=None), hierarchical),
    "gloo": (gloo, None, None),
    "gloo, bf16_compress_hook": (gloo, gloo, bf16_compress_hook),
}


def network(group, state, hook):
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    net = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(1024, 10)), process_group=group, bucket_cap_mb=4)
    if hook:
        net.register_comm_hook(state, hook)
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(32, 1024)).sum().backward()
    optimizer.step()


networks = {name: network(*way) for name, way in WAYS.items()}
times = {name: [] for name in WAYS}
for _ in range(8):
    for name, one in networks.items():
        dist.barrier(group=gloo)
        began = time.perf_counter()
        for _ in range(3):
            step(*one)
        took = torch.tensor([(time.perf_counter() - began) / 3 * 1e3])
        dist.all_reduce(took, dist.ReduceOp.MAX, group=gloo)
        times[name].append(took.item())
if dist.get_rank() == 0:
    print(f"{len(whose)} ranks on {len(set(whose))} nodes; milliseconds a step")
    for name, rounds in times.items():
        # In the first round DDP makes its buckets anew.
        print(f"{name:40} {statistics.median(rounds[1:]):8.1f}", flush=True)
dist.barrier()
dist.destroy_process_group()
