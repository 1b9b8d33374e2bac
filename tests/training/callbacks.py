# SPDX-License-Identifier: BSD-3-Clause
"""Functions that wait for operations in the callback of a future: torch's PowerSGD hook, chains of them, and one whose wait never
ends; and the order of the operations that they start."""
import datetime
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def power_sgd():
    torch.manual_seed(1)
    net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.ReLU(), torch.nn.Linear(300, 50)), bucket_cap_mb=0.05)
    state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(5):
        net.zero_grad()
        net(torch.randn(16, 200, generator=generator)).square().mean().backward()
    for parameter in net.parameters():
        other = [torch.empty_like(parameter) for _ in range(SIZE)]
        dist.all_gather(other, parameter.grad.detach())
        assert all(torch.equal(one, other[0]) for one in other), "the ranks have different gradients"


def chains():
    """Each callback waits for an operation that started before, for one that it starts, and for its own."""
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(4)]

    def after(work, before, depth):
        def call(future):
            before.get_future().wait()
            work.wait()
            assert work.is_completed()
            if depth == 0:
                return future.value()[0][0].item()
            inner = dist.all_reduce(torch.ones(1000), async_op=True)
            return inner.get_future().then(after(inner, before, depth - 1)).wait()

        return call

    last = works[-1]
    got = [work.get_future().then(after(work, last, 0)) for work in works[:-1]]
    assert torch.futures.wait_all(got) == [SIZE] * 3
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    assert work.get_future().then(after(work, last, 3)).wait() == SIZE


def orders():
    """An operation that a callback starts comes before the program's next operation at all ranks: where the operation had ended
    before the callback came, where it is started last, and where the program goes on long before it ends."""
    for turn in range(2 * SIZE):
        if RANK == (turn + 1) % SIZE:
            time.sleep(0.1)
        first = dist.all_reduce(torch.ones(1000), async_op=True)
        if RANK == turn % SIZE:
            time.sleep(0.3)
        done = first.get_future().then(lambda _: dist.all_reduce(torch.full((10,), 2.0), async_op=True).get_future().wait()[0])
        second = dist.all_reduce(torch.full((3000,), 3.0), async_op=True)
        second.wait()
        assert torch.equal(done.wait(), torch.full((10,), 2.0 * SIZE)), done.wait()
        assert torch.equal(second.result()[0], torch.full((3000,), 3.0 * SIZE)), second.result()


def in_vain():
    """The operation ends at its group's time-out, and does no other harm."""
    hurried = dist.new_group(backend="outboard", timeout=datetime.timedelta(seconds=1))

    def call(_):
        dist.irecv(torch.zeros(1), (RANK + 1) % SIZE, group=hurried, tag=5).wait()

    begun = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(call).wait()
        raise SystemExit("a receive that nobody answers ended")
    except RuntimeError as error:
        assert "did not end within its timeout of 1 s" in str(error), error
    assert time.monotonic() - begun < 60
    dist.barrier()


for part in orders, power_sgd, chains, in_vain:
    part()
print(f"rank {RANK}: callbacks may wait", flush=True)
dist.destroy_process_group()
