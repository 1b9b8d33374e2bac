# SPDX-License-Identifier: BSD-3-Clause
"""Process groups that end and are made again, with other ranks and by other members: `lives.py [again|subset]`, under mpirun or torchrun.

    again    all processes, in other orders, and some of them
    subset   the first group has two of the processes"""
import datetime
import os
import sys

import outboard_torch  # noqa: F401
import outboard_torch_autoload
import torch
import torch.distributed as dist

PROCESS, PROCESSES = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
IS_LAUNCHED = outboard_torch_autoload.is_launched()
TIMEOUT = datetime.timedelta(seconds=120)


def begin(backend, order):
    """Makes the group of the processes in `order`; their positions are their ranks. A process that is not in `order`
    makes no group."""
    if PROCESS in order:
        dist.init_process_group(backend, init_method="env://", rank=order.index(PROCESS), world_size=len(order), timeout=TIMEOUT)
    return PROCESS in order


def check(order, group=None):
    """Checks that each rank's data arrives at each other rank."""
    rank, size = order.index(PROCESS), len(order)
    peer = group or dist.group.WORLD
    assert (dist.get_rank(peer), dist.get_world_size(peer)) == (rank, size)
    one = torch.tensor([100 + PROCESS])
    dist.broadcast(one, group=peer, group_src=0)
    assert one.item() == 100 + order[0], f"{order}: a broadcast from rank 0 brings {one.item()}"
    all_of_them = [torch.empty(1, dtype=torch.long) for _ in order]
    dist.all_gather(all_of_them, torch.tensor([PROCESS]), group=peer)
    assert [one.item() for one in all_of_them] == order, f"{order}: all_gather brings {all_of_them}"
    got = torch.empty(1, dtype=torch.long)
    work = dist.isend(torch.tensor([PROCESS]), group=peer, group_dst=(rank + 1) % size)
    dist.recv(got, group=peer, group_src=(rank - 1) % size)
    work.wait()
    assert got.item() == order[rank - 1], f"{order}: {got.item()} arrives at rank {rank}"


def again():
    whole = list(range(PROCESSES))
    orders = [whole, whole[::-1], whole[1:] + whole[:1], whole[::-1][:-1], whole[1:], whole]
    for order in orders:
        if begin("outboard", order):
            check(order)
            if len(order) > 2:
                # A group within the group: its members have ranks of this init.
                some = dist.new_group([0, len(order) - 1], backend="outboard")
                if PROCESS in (order[0], order[-1]):
                    check([order[0], order[-1]], some)
            dist.destroy_process_group()


def subset():
    begin("gloo", list(range(PROCESSES)))
    pair = [1, PROCESSES - 1]
    some = dist.new_group(pair, backend="outboard")
    if PROCESS in pair:
        check(pair, some)
    dist.barrier()
    try:
        other = dist.new_group([0, 1], backend="outboard")
    except RuntimeError as error:
        assert PROCESS < 2 and not IS_LAUNCHED and "are in different MPI jobs" in str(error) and "init_process_group" in str(error), error
    else:
        # Without a launcher of MPI the processes of the first group are a job of their own.
        assert PROCESS >= 2 or IS_LAUNCHED, "a group of processes of two jobs"
        if PROCESS < 2:
            check([0, 1], other)
    dist.barrier()
    dist.destroy_process_group()


{"again": again, "subset": subset}[sys.argv[1]]()
print(f"process {PROCESS}: {sys.argv[1]} is right", flush=True)
