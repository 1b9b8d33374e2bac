# SPDX-License-Identifier: BSD-3-Clause
"""A step of DDP as torch's profiler sees it: how long its all-reduces were under way, and how much of that went on beside computation.

    tests/training/run -- mpirun -n 2 PYTHON bench/training/overlap.py                       outboard by its callers, and gloo
    OUTBOARD_OFFLOAD=on tests/training/run -- mpirun -n 2 --proxies 1 PYTHON bench/training/overlap.py

6 layers of 1024 (25 MB of gradients) in buckets of 4 MB. The backends take turns; medians over rounds of the slowest rank's milliseconds. `processor`: of a
rank, without a proxy's. --trace FILE writes rank 0's last step over outboard for chrome://tracing or Perfetto."""
import argparse
import os
import statistics
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # The profiler's own lines.
import outboard_torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--steps", type=int, default=4, help="steps of a round that are timed; one more is profiled")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--trace")
chosen = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("outboard")
GROUPS = {"outboard": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
rank, size = dist.get_rank(), dist.get_world_size()


def network(group):
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    net = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(1024, 10)), process_group=group, bucket_cap_mb=4)
    return net, torch.optim.SGD(net.parameters(), lr=1e-3), torch.ones(chosen.batch, 1024)


def step(net, optimizer, inputs):
    optimizer.zero_grad()
    net(inputs).sum().backward()
    optimizer.step()


def union(spans):
    """The union of the spans, as spans that do not overlap, in order."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def shared(one, other):
    return sum(max(0, min(a_end, b_end) - max(a, b)) for a, a_end in one for b, b_end in other)


def looked_at(backend, parts):
    """The milliseconds of a profiled step in which all-reduces were under way, and those of them in which the rank also
    computed."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step(*parts)
    spans = {"moves": [], "computes": []}
    for event in seen.events():
        name, span = event.name, (event.time_range.start, event.time_range.end)
        if name == f"{backend}:all_reduce":
            spans["moves"].append(span)
        elif name.startswith(("aten::addmm", "aten::mm", "aten::threshold_backward", "aten::_foreach", "aten::sum", "aten::relu")):
            spans["computes"].append(span)
    moves, computes = union(spans["moves"]), union(spans["computes"])
    if chosen.trace and rank == 0 and backend == "outboard":
        seen.export_chrome_trace(chosen.trace)
    return sum(end - begin for begin, end in moves) / 1000, shared(moves, computes) / 1000


parts = {backend: network(group) for backend, group in GROUPS.items()}
figures = {backend: [] for backend in GROUPS}
for number in range(chosen.rounds + 1):
    for backend in GROUPS:
        dist.barrier(group=GROUPS["gloo"])
        began, spent = time.perf_counter(), time.process_time()
        for _ in range(chosen.steps):
            step(*parts[backend])
        took = [(clock - before) * 1000 / chosen.steps for clock, before in ((time.perf_counter(), began), (time.process_time(), spent))]
        row = torch.tensor([*took, *looked_at(backend, parts[backend])])
        dist.all_reduce(row, dist.ReduceOp.MAX, group=GROUPS["gloo"])
        if number:
            figures[backend].append(row.tolist())
if rank == 0:
    print(f"{size} ranks, ms\n{'':10} {'step':>9} {'processor':>9} {'moving':>9} {'beside':>9} {'share':>6}")
    for backend, rows in figures.items():
        step_ms, processor, moving, beside = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{backend:10} {step_ms:9.1f} {processor:9.1f} {moving:9.1f} {beside:9.1f} {beside / moving:6.2f}")
dist.barrier()
dist.destroy_process_group()
