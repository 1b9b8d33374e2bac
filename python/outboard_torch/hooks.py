"""Communication hooks for DistributedDataParallel.

    net.register_comm_hook(Nodes(), hierarchical)      # bf16 between nodes; Nodes(dtype=None): as the gradients are

The gradients of a bucket are summed at the first rank of each node, then among these, then given to all ranks of the node. So one rank of each node
sends to other nodes, in half as many bytes. `bf16_compress_hook` of torch works over Outboard, too: that is bf16 everywhere.
"""
import collections
import concurrent.futures

import torch
import torch.distributed as dist

from . import _backend

__all__ = ["Nodes", "hierarchical"]


class Nodes:
    """The groups of `hierarchical`. All ranks of `group` make it, at the same time. `dtype`: of what goes between nodes."""

    def __init__(self, group=None, dtype=torch.bfloat16):
        self.dtype, self.size = dtype, dist.get_world_size(group)
        whose = [None] * self.size
        dist.all_gather_object(whose, (_backend.node(), dist.get_rank()), group=group)
        nodes = collections.defaultdict(list)
        for node, rank in whose:
            nodes[node].append(rank)
        here = nodes[_backend.node()]
        firsts = [ranks[0] for ranks in nodes.values()]
        self.first, self.is_first = here[0], here[0] == dist.get_rank()

        def among(ranks):
            return dist.new_group(ranks, backend="outboard", use_local_synchronization=True)

        # A group for each of the three steps: each has its calls in the order of the buckets, so all members have the same order.
        self.sums, self.results = among(here), among(here)
        # Torch names a group by how many were made before, so those who are not first make one, too.
        self.firsts = among(firsts if self.is_first else [dist.get_rank()])
        self.worker = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="outboard-hook")

    def finish(self, buffer, summed, future):
        """What follows the sums of the nodes; in the worker, bucket after bucket."""
        try:
            summed.wait()
            if self.firsts.size() > 1:
                sent = buffer if self.dtype is None else buffer.to(self.dtype)
                dist.all_reduce(sent, group=self.firsts)
                if sent is not buffer:
                    buffer.copy_(sent)
            dist.broadcast(buffer, self.first, group=self.results)
            future.set_result(buffer)
        except Exception as error:
            future.set_exception(error)


def hierarchical(nodes, bucket):
    """The hook: the average over all ranks, node by node."""
    buffer = bucket.buffer().div_(nodes.size)
    future = torch.futures.Future()
    summed = dist.reduce(buffer, nodes.first, group=nodes.sums, async_op=True)
    nodes.worker.submit(nodes.finish, buffer, summed, future)
    return future
