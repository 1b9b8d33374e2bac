# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed over Outboard and gloo in one job: all_reduce of several sizes, blocking and many outstanding, and a step of DDP.

    tests/training/run -- mpirun -n 2 PYTHON bench/training/compare.py [--quick] [PART OF A ROW'S NAME ...]

The two take turns; each figure is the median of 5 rounds, the slowest rank's. Prints a table of microseconds, and gloo's time over ours."""
import argparse
import statistics
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*", help="only rows whose name contains one of these")
parser.add_argument("--quick", action="store_true")
chosen = parser.parse_args()
quick = chosen.quick
torch.set_num_threads(1)
dist.init_process_group("outboard")
GROUPS = {"outboard": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
rank, size = dist.get_rank(), dist.get_world_size()


def measure(name, run, repeats, rounds=3 if quick else 5):
    """The median time of `run(group)`."""
    if chosen.names and not any(part in name for part in chosen.names):
        return
    times = {backend: [] for backend in GROUPS}
    for backend, group in GROUPS.items():
        run(group)
    for _ in range(rounds):
        for backend, group in GROUPS.items():
            dist.barrier(group=GROUPS["gloo"])
            began = time.perf_counter()
            for _ in range(repeats):
                run(group)
            took = torch.tensor([(time.perf_counter() - began) / repeats * 1e6])
            dist.all_reduce(took, dist.ReduceOp.MAX, group=GROUPS["gloo"])
            times[backend].append(took.item())
    ours, theirs = (statistics.median(times[backend]) for backend in ("outboard", "gloo"))
    if rank == 0:
        print(f"{name:42} {ours:12.1f} {theirs:12.1f} {ours / theirs:8.2f}", flush=True)


if rank == 0:
    print(f"{size} ranks; microseconds, and ours over gloo's\n{'':42} {'outboard':>12} {'gloo':>12} {'ratio':>8}")
for bytes_, repeats in (8, 300), (4096, 200), (1 << 20, 20), (4 << 20, 8), (25 << 20, 2):
    data = torch.zeros(max(bytes_ // 4, 1))
    measure(f"all_reduce, {bytes_} B", lambda group, data=data: dist.all_reduce(data, group=group), repeats)
for dtype in torch.bfloat16, torch.float16:
    data = torch.zeros(2 << 20, dtype=dtype)
    measure(f"all_reduce, 4 MiB, {dtype}", lambda group, data=data: dist.all_reduce(data, group=group), 4)
for bytes_, count in (1 << 20, 8), (25 << 20, 4):
    many = [torch.zeros(bytes_ // 4) for _ in range(count)]

    def outstanding(group, many=many):
        for work in [dist.all_reduce(data, group=group, async_op=True) for data in many]:
            work.wait()

    measure(f"all_reduce, {count} of {bytes_ >> 20} MiB outstanding", outstanding, 2)
whole, part = torch.empty(size << 20), torch.ones(1 << 20)
measure("all_gather_into_tensor, 4 MiB a rank", lambda group: dist.all_gather_into_tensor(whole, part, group=group), 4)
measure("reduce_scatter_tensor, 4 MiB a rank", lambda group: dist.reduce_scatter_tensor(part, whole, group=group), 4)
measure("broadcast, 25 MiB", lambda group, data=torch.ones(25 << 18): dist.broadcast(data, 0, group=group), 2)
measure("barrier", lambda group: dist.barrier(group=group), 100)

networks = {}
for backend, group in GROUPS.items():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    net = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(1024, 10)), process_group=group, bucket_cap_mb=4)
    networks[id(group)] = net, torch.optim.SGD(net.parameters(), lr=1e-3)


def step(group):
    net, optimizer = networks[id(group)]
    optimizer.zero_grad()
    net(torch.ones(32, 1024)).sum().backward()
    optimizer.step()


measure("step of DDP, 6 layers of 1024 (25 MB)", step, 3)
dist.barrier()
dist.destroy_process_group()
