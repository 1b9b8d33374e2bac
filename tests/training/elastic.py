# SPDX-License-Identifier: BSD-3-Clause
"""A worker whose number of peers changes: `elastic.py LOG STOP`. It sums ones until the file STOP exists. For each life of the
group it appends a line to LOG, with the group's size and the hosts of its ranks."""
import datetime
import os
import socket
import sys
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist

log, stop = sys.argv[1:]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=30))
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
hosts = [None] * size
dist.all_gather_object(hosts, socket.gethostname())
is_over = torch.zeros(1, dtype=torch.long)
step = 0
while not is_over.item():
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert (total == size).all(), total
    if rank == 0:
        if step == 5:
            with open(log, "a", encoding="ascii") as file:
                file.write(f"{size} {' '.join(hosts)}\n")
        is_over[0] = os.path.exists(stop)
    dist.broadcast(is_over, 0)
    step += 1
    time.sleep(0.01)
print(f"rank {rank} of {size} ends after {step} steps", flush=True)
dist.destroy_process_group()
