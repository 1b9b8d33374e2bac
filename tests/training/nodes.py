# SPDX-License-Identifier: BSD-3-Clause
"""The hierarchical hook of DDP averages as an all-reduce does. The argument is the number of nodes on which the ranks
are."""
import datetime
import sys

import outboard_torch
import torch
import torch.distributed as dist
from models import compare, ddp, model, train
from outboard_torch.hooks import Nodes, hierarchical
from torch.nn.parallel import DistributedDataParallel

rank, size = dist.get_rank(), dist.get_world_size()


class Bucket:
    """The part of DDP's bucket that a hook uses."""

    def __init__(self, gradients):
        self.gradients = gradients

    def buffer(self):
        return self.gradients


for dtype in None, torch.bfloat16:
    nodes = Nodes(dtype=dtype)
    # Small integers, so that each order of sums, and bfloat16, gives the same bits. Several buckets at once, of different
    # lengths.
    buckets = [(torch.arange(length) % 7 + rank + number).float() * size for number, length in enumerate((1, 70_000, 3, 1_000_000, 0, 5000))]
    wanted = [bucket / size for bucket in buckets]
    futures = [hierarchical(nodes, Bucket(bucket)) for bucket in buckets]
    for number, (future, right) in enumerate(zip(futures, wanted, strict=True)):
        dist.all_reduce(right)
        if not torch.equal(future.wait(), right):
            sys.exit(f"rank {rank}: bucket {number} with {dtype} between nodes is not the average")
    net = DistributedDataParallel(model(), bucket_cap_mb=0.3)
    net.register_comm_hook(nodes, hierarchical)
    compare(train(net), ddp(None), f"DDP with the hierarchical hook, {dtype} between nodes", 2e-5 if dtype is None else 2e-2)
whose = [None] * size
dist.all_gather_object(whose, outboard_torch.node())
if len(set(whose)) != int(sys.argv[1]):
    sys.exit(f"rank {rank} sees the nodes {whose}, not {sys.argv[1]}")
dist.barrier()
dist.destroy_process_group()
