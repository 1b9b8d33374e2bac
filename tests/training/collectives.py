# SPDX-License-Identifier: BSD-3-Clause
"""Every collective of torch.distributed with every type, beside gloo in the same job: the results are the same. Integers and moves to the
bit; reductions of floating-point numbers to what another order of the sum may change."""
import datetime
import sys

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=120))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GLOO = dist.new_group(backend="gloo")
# Before 2.14 torch itself refused it for all backends but gloo.
HAS_MONITORED = torch.__version__ >= "2.14"
checked = 0

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
OPS = dist.ReduceOp
# Relative: half a unit in the last place for each of at most 3 additions.
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 3e-2, torch.float32: 5e-7, torch.float64: 1e-15}


def data(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(1000 * RANK + seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator) > 0
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def same(ours, theirs, what, tolerance=0.0, scale=4.0):
    global checked
    checked += 1
    for a, b in zip(ours, theirs, strict=True):
        good = torch.equal(a, b) if tolerance == 0 else torch.allclose(a.double(), b.double(), rtol=tolerance, atol=scale * tolerance)
        if not good:
            print(f"rank {RANK} of {SIZE}: {what}: {a} is not gloo's {b}", file=sys.stderr, flush=True)
            sys.exit(1)


def both(call, make, what, tolerance=0.0):
    """Runs `call(group, *tensors)` on both backends with the same inputs, and compares the results."""
    theirs = call(GLOO, *make())
    same(call(dist.group.WORLD, *make()), theirs, what, tolerance)


def reduce_all(group, tensor, op):
    dist.all_reduce(tensor, op, group=group)
    return [tensor]


def reductions():
    for dtype in [*FLOATS, *INTEGERS]:
        tolerance = TOLERANCE.get(dtype, 0.0)
        for op in [OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX] + ([] if dtype in FLOATS else [OPS.BAND, OPS.BOR, OPS.BXOR]):
            for count in 1, 1000, 70_000:
                what = f"{op} of {count} {dtype}"
                if op == OPS.PRODUCT and count > 1000:
                    continue
                both(lambda g, t, op=op: reduce_all(g, t, op), lambda: [data((count,), dtype)], f"all_reduce {what}", tolerance)

                def reduce_to(group, tensor, op=op):
                    dist.reduce(tensor, SIZE - 1, op, group=group)
                    return [tensor] if RANK == SIZE - 1 else []

                both(reduce_to, lambda: [data((count,), dtype)], f"reduce {what}", tolerance)

                def scatter_sum(group, whole, op=op):
                    part = torch.empty(whole.numel() // SIZE, dtype=whole.dtype)
                    dist.reduce_scatter_tensor(part, whole, op, group=group)
                    return [part]

                if op == OPS.SUM:
                    both(scatter_sum, lambda: [data((count * SIZE,), dtype)], f"reduce_scatter_tensor {what}", tolerance)
    for dtype in FLOATS:
        mine = reduce_all(None, data((1000,), dtype), OPS.AVG)[0]
        total = reduce_all(GLOO, data((1000,), dtype).double(), OPS.SUM)[0] / SIZE
        same([mine], [total], f"average of {dtype}", TOLERANCE[dtype])
    parts = [data((5, 3), torch.float32, seed) for seed in range(SIZE)]
    own = torch.empty(5, 3)
    dist.reduce_scatter(own, parts)
    total = [reduce_all(GLOO, part.clone(), OPS.SUM)[0] for part in parts]
    same([own], [total[RANK]], "reduce_scatter of a list", TOLERANCE[torch.float32])


def moves():
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        for shape in (7,), (130, 100):
            what = f"{shape} {dtype}"

            def broadcast(group, tensor):
                dist.broadcast(tensor, SIZE - 1, group=group)
                return [tensor]

            def gather_all(group, tensor):
                out = [torch.empty_like(tensor) for _ in range(SIZE)]
                dist.all_gather(out, tensor, group=group)
                return out

            def gather_single(group, tensor):
                out = torch.empty((SIZE * shape[0], *shape[1:]), dtype=dtype)
                dist.all_gather_into_tensor(out, tensor, group=group)
                return [out]

            def gather(group, tensor):
                out = [torch.empty_like(tensor) for _ in range(SIZE)] if RANK == 0 else None
                dist.gather(tensor, out, 0, group=group)
                return out or []

            def scatter(group, tensor):
                out = torch.empty_like(tensor)
                dist.scatter(out, [tensor + i if dtype != torch.bool else tensor for i in range(SIZE)] if RANK == 1 else None, 1, group=group)
                return [out]

            for call in broadcast, gather_all, gather_single, gather, scatter:
                both(call, lambda: [data(shape, dtype)], f"{call.__name__} {what}")

        def exchange(group, tensor):
            out = torch.empty_like(tensor)
            dist.all_to_all_single(out, tensor, group=group)
            return [out]

        both(exchange, lambda: [data((SIZE * 6, 4), dtype)], f"all_to_all_single {dtype}")

        def uneven(group, tensor):
            sends, receives = [RANK + i for i in range(SIZE)], [RANK + i for i in range(SIZE)]
            out = torch.empty((sum(receives), 4), dtype=dtype)
            dist.all_to_all_single(out, tensor, receives, sends, group=group)
            return [out]

        both(uneven, lambda: [data((sum(RANK + i for i in range(SIZE)), 4), dtype)], f"all_to_all_single with sizes {dtype}")
    lists = [torch.full((RANK + i,), 10.0 * RANK + i) for i in range(SIZE)]
    out = [torch.empty(RANK + i) for i in range(SIZE)]
    dist.all_to_all(out, lists)
    same(out, [torch.full((RANK + i,), 10.0 * i + RANK) for i in range(SIZE)], "all_to_all of lists")


def point_to_point():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in 1, 3_000_000:
        got = torch.empty(count)
        work = dist.isend(torch.full((count,), float(RANK)), right, tag=3)
        assert dist.recv(got, tag=3) == left, "the sender of a receive from any"
        work.wait()
        same([got], [torch.full((count,), float(left))], "send and recv")
    got = torch.empty(9)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((9,), float(RANK)), right),
                                        dist.P2POp(dist.irecv, got, left)]):
        work.wait()
    same([got], [torch.full((9,), float(left))], "batch_isend_irecv")


def objects_and_groups():
    global checked
    everything = [None] * SIZE
    dist.all_gather_object(everything, {"rank": RANK, "text": "x" * (RANK * 1000)})
    assert [one["rank"] for one in everything] == list(range(SIZE)), everything
    some = [("from", RANK)] * 2
    dist.broadcast_object_list(some, src=1)
    assert some == [("from", 1)] * 2, some
    low, high = list(range((SIZE + 1) // 2)), list(range((SIZE + 1) // 2, SIZE))
    groups = [dist.new_group(ranks, backend="outboard") for ranks in (low, high)]
    mine = low if RANK in low else high
    total = reduce_all(groups[RANK not in low], torch.tensor([RANK]), OPS.SUM)[0]
    assert total.item() == sum(mine), (total, mine)
    # Before 2.15 torch splits only groups that are bound to a device.
    if torch.__version__ >= "2.15":
        split = dist.split_group(split_ranks=[low, high])
        assert dist.get_world_size(split) == len(mine)
        assert reduce_all(split, torch.tensor([RANK]), OPS.SUM)[0].item() == sum(mine)
    dist.barrier()
    if HAS_MONITORED:
        dist.monitored_barrier()
    many = [data((500,), torch.float32, seed) for seed in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in many]
    futures = [work.get_future().then(lambda future: future.value()[0].sum().item()) for work in works]
    sums = torch.futures.wait_all(futures)
    wanted = [reduce_all(GLOO, data((500,), torch.float32, seed), OPS.SUM)[0].sum().item() for seed in range(20)]
    assert all(abs(a - b) < 1e-3 for a, b in zip(sums, wanted)), (sums, wanted)
    checked += 8


def refused():
    """Wrong arguments and time-outs raise errors, each with a sentence."""
    global checked
    for call, words in [
        (lambda: dist.all_reduce(torch.zeros(3, dtype=torch.float32), OPS.BAND), "not defined on f32"),
        (lambda: dist.all_gather_into_tensor(torch.zeros(SIZE + 1), torch.zeros(1)), "not that times"),
    ]:
        try:
            call()
        except RuntimeError as error:
            assert words in str(error), error
            checked += 1
        else:
            raise AssertionError(f"not refused: {words}")
    work = dist.irecv(torch.zeros(1), (RANK + 1) % SIZE, tag=77)
    try:
        work.wait(datetime.timedelta(milliseconds=200))
    except RuntimeError as error:
        assert "has not ended within the timeout of 0.2 s of a wait" in str(error), error
        checked += 1
    else:
        raise AssertionError("a receive without a sender ended")
    dist.barrier(group=GLOO)
    dist.send(torch.zeros(1), (RANK - 1) % SIZE, tag=77)
    work.wait()
    try:
        if RANK == 0 and HAS_MONITORED:
            dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=300), wait_all_ranks=True)
            raise AssertionError("monitored_barrier without the others ended")
    except RuntimeError as error:
        assert "failed to pass monitoredBarrier in 300 ms" in str(error), error
        checked += 1
    dist.barrier()


for part in reductions, moves, point_to_point, objects_and_groups, refused:
    part()
assert checked > 100, checked
dist.barrier()
dist.destroy_process_group()
