# SPDX-License-Identifier: BSD-3-Clause
"""A worker of torchrun whose lives fail: `restarts.py LIVES`. In each of the first LIVES lives a rank ends, each time another one
at another point: before its first group, between MPI's start and the first collective, or within a collective. The last life ends
well."""
import datetime
import os
import signal
import sys

life, rank, size = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE"))
failing = int(sys.argv[1])
# On several hosts each agent counts only the failures of its own workers, so a file has a line for each death.
deaths = os.environ.get("RESTARTS_NODES")
if deaths:
    with open(deaths, "a+", encoding="ascii") as file:
        file.seek(0)
        life = len(file.readlines())


def may_die(point):
    if life < failing and rank == (life + 1) % size and point == (life + rank) % 3:
        print(f"life {life}: rank {rank} of {size} ends at point {point}", flush=True)
        if deaths:
            with open(deaths, "a", encoding="ascii") as file:
                file.write(f"{life} {rank} {point}\n")
        if life % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(5)


may_die(0)
import outboard_torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=120))
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
may_die(1)
seen = [torch.empty(2, dtype=torch.long) for _ in range(size)]
dist.all_gather(seen, torch.tensor([rank, life]))
assert [one[0].item() for one in seen] == list(range(size)), f"life {life}: {seen}"
assert len({one[1].item() for one in seen}) == 1 or deaths, f"ranks of several lives: {seen}"
may_die(2)
halves = [dist.new_group(list(range(first, size, 2)), backend="outboard") for first in range(2)]
total = torch.tensor([rank])
dist.all_reduce(total, group=halves[rank % 2])
assert total.item() == sum(range(rank % 2, size, 2)), total
dist.barrier()
print(f"life {life}: rank {rank} of {size} is right", flush=True)
dist.destroy_process_group()
