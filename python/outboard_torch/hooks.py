# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks for DistributedDataParallel.

    net.register_comm_hook(Nodes(), hierarchical)      # bf16 between nodes; Nodes(dtype=None): as the gradients are

Each rank of a node sums a share of the node's gradients, sums that with its like on the other nodes, and gives it to its node. So of each node as many
ranks send to other nodes as the smallest has, in half as many bytes. `bf16_compress_hook` of torch works over Outboard, too: that is bf16 everywhere.
"""
import collections
import concurrent.futures

import torch
import torch.distributed as dist

from . import _backend

__all__ = ["Nodes", "hierarchical"]


class Nodes:
    """The groups of `hierarchical`. All ranks of `group` must make it at the same time. `dtype` is the type of the elements
    that are sent between nodes."""

    def __init__(self, group=None, dtype=torch.bfloat16):
        self.dtype, self.size = dtype, dist.get_world_size(group)
        whose = [None] * self.size
        dist.all_gather_object(whose, (_backend.node(), dist.get_rank()), group=group)
        nodes = collections.defaultdict(list)
        for node, rank in whose:
            nodes[node].append(rank)
        self.here = nodes[_backend.node()]
        self.shares = min(len(ranks) for ranks in nodes.values())
        self.place = self.here.index(dist.get_rank())
        like = [ranks[self.place] for ranks in nodes.values()] if self.place < self.shares else [dist.get_rank()]

        def among(ranks):
            return dist.new_group(ranks, backend="outboard", use_local_synchronization=True)

        # There is one group for each of the three steps. Each group has its calls in the order of the buckets, so all members
        # have the same order.
        self.sums, self.results = among(self.here), among(self.here)
        # Torch names a group by the number of groups before it, so ranks without a share make one, too.
        self.like = among(like)
        self.worker = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="outboard-hook")

    def finish(self, buffer, shares, sums, future):
        """The steps after the sums within the node. They run in the worker, bucket after bucket."""
        try:
            for summed in sums:
                summed.wait()
            if self.like.size() > 1 and self.place < len(shares):
                mine = shares[self.place]
                sent = mine if self.dtype is None else mine.to(self.dtype)
                dist.all_reduce(sent, group=self.like)
                if sent is not mine:
                    mine.copy_(sent)
            results = [dist.broadcast(share, root, group=self.results, async_op=True) for share, root in zip(shares, self.here, strict=False)]
            for result in results:
                result.wait()
            future.set_result(buffer)
        except Exception as error:
            future.set_exception(error)


def hierarchical(nodes, bucket):
    """The hook for DistributedDataParallel: averages over all ranks, node by node."""
    buffer = bucket.buffer().div_(nodes.size)
    if len(nodes.here) == nodes.size:
        return dist.all_reduce(buffer, group=nodes.sums, async_op=True).get_future().then(lambda done: done.value()[0])
    shares = buffer.chunk(nodes.shares)
    sums = [dist.reduce(share, root, group=nodes.sums, async_op=True) for share, root in zip(shares, nodes.here, strict=False)]
    future = torch.futures.Future()
    nodes.worker.submit(nodes.finish, buffer, shares, sums, future)
    return future
