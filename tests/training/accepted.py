# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that gloo takes, and a few that it does not: strided, transposed, expanded, complex, sparse, uneven lists. An error has
the facts: what was too long, for which rank, and from which rank."""
import datetime

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=120))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def of(rank, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7 + rank), dtype=dtype)


def total(*shape, dtype=torch.float64):
    return sum(of(rank, *shape, dtype=dtype) for rank in range(SIZE))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def strided():
    # The tensor has gaps, whose bytes must stay; at one rank only it is transposed.
    base = torch.full((6, 10), -1.0, dtype=torch.float64)
    part = base[:, ::2]
    part.copy_(of(RANK, 6, 5))
    dist.all_reduce(part)
    close(part, total(6, 5))
    assert (base[:, 1::2] == -1).all()
    mixed = of(RANK, 6, 5) if RANK else of(RANK, 6, 5).t().contiguous().t()
    dist.all_reduce(mixed)
    close(mixed, total(6, 5))
    dist.broadcast(part.copy_(of(RANK, 6, 5)), 1)
    close(part, of(1, 6, 5))
    out = [torch.zeros(5, 6, dtype=torch.float64).t() for _ in range(SIZE)]
    dist.all_gather(out, of(RANK, 6, 5).t().contiguous().t())
    for rank in range(SIZE):
        close(out[rank], of(rank, 6, 5))
    whole = torch.zeros(5, 6 * SIZE, dtype=torch.float64).t()
    dist.all_gather_into_tensor(whole, of(RANK, 5, 6).t())
    close(whole, torch.cat([of(rank, 5, 6).t() for rank in range(SIZE)]))
    sums = torch.zeros(5, 6, dtype=torch.float64).t()
    dist.reduce_scatter_tensor(sums, of(RANK, 5, 6 * SIZE).t())
    close(sums, total(5, 6 * SIZE).t()[6 * RANK:6 * RANK + 6])
    exchanged = torch.zeros(5, 2 * SIZE, dtype=torch.float64).t()
    dist.all_to_all_single(exchanged, of(RANK, 5, 2 * SIZE).t())
    close(exchanged, torch.cat([of(rank, 5, 2 * SIZE).t()[2 * RANK:2 * RANK + 2] for rank in range(SIZE)]))
    work = dist.isend(of(RANK, 5, 6).t(), (RANK + 1) % SIZE)
    got = torch.zeros(6, 10, dtype=torch.float64)[:, ::2]
    dist.recv(got, (RANK - 1) % SIZE)
    work.wait()
    close(got, of((RANK - 1) % SIZE, 5, 6).t())
    last = torch.zeros(4, dtype=torch.float64).expand(3, 4)
    try:
        dist.all_reduce(last)
        raise AssertionError("a tensor whose elements share memory was reduced")
    except RuntimeError as error:
        assert "share memory" in str(error), error


def complex_numbers():
    dtype = torch.complex128
    one = of(RANK, 7, dtype=dtype)
    dist.reduce(one, 0)
    if RANK == 0:
        close(one, total(7, dtype=dtype))
    part = torch.empty(3, dtype=dtype)
    dist.reduce_scatter_tensor(part, of(RANK, 3 * SIZE, dtype=dtype))
    close(part, total(3 * SIZE, dtype=dtype)[3 * RANK:3 * RANK + 3])
    try:
        dist.reduce_scatter_tensor(part, of(RANK, 3 * SIZE, dtype=dtype), dist.ReduceOp.MAX)
        raise AssertionError("complex numbers have no maximum")
    except RuntimeError as error:
        assert "sums and averages only" in str(error), error


def uneven():
    out = torch.empty(2 + 3 * RANK, dtype=torch.float64)
    dist.reduce_scatter(out, [of(10 * RANK + who, 2 + 3 * who) for who in range(SIZE)])
    close(out, sum(of(10 * rank + RANK, 2 + 3 * RANK) for rank in range(SIZE)))


def sparse():
    def make(rank):
        where = torch.tensor([[rank, 3, rank], [0, 1, 0]])
        return torch.sparse_coo_tensor(where[:, :3 - rank % 2], torch.arange(1.0, 7.0).view(3, 2)[:3 - rank % 2] * (rank + 1), (8, 2, 2))

    wanted = sum(make(rank).to_dense() for rank in range(SIZE))
    one = make(RANK)
    dist.all_reduce(one)
    close(one.to_dense(), wanted)
    first = [make(RANK), make(RANK)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in first]
    for work, tensor in zip(works, first, strict=True):
        work.wait()
        close(tensor.to_dense(), wanted)
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.EmbeddingBag(10, 3, sparse=True, mode="sum"))
    net(torch.tensor([[RANK, 9]])).sum().backward()
    gradient = next(net.parameters()).grad.to_dense()
    assert gradient[9, 0] == 1 and gradient[0, 0] == 1 / SIZE, gradient


def facts():
    if RANK == 0:
        dist.send(torch.zeros(100), 1)
    elif RANK == 1:
        try:
            dist.recv(torch.zeros(10), 0)
            raise AssertionError("400 bytes fit into 40")
        except RuntimeError as error:
            words = str(error)
            assert "MPI_ERR_TRUNCATE" in words and "400 bytes" in words and "holds 40" in words and "rank 0" in words, words
    dist.barrier()


for part in strided, complex_numbers, uneven, sparse, facts:
    part()
print(f"rank {RANK}: all were taken", flush=True)
dist.destroy_process_group()
