# SPDX-License-Identifier: BSD-3-Clause
"""A worker of torchrun whose group loses members: `death.py RANKS sys.exit|SIGKILL`. These ranks end while the others are in a
collective. A child that they have forked lives on for a while, as a DataLoader's child does."""
import datetime
import os
import signal
import sys
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("outboard", timeout=datetime.timedelta(seconds=120))
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank])
dist.all_reduce(total)
assert total.item() == size * (size - 1) // 2, total
if str(rank) in sys.argv[1].split(","):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    # The others are in the next collective by then.
    time.sleep(0.5)
    print(f"rank {rank} of {size} ends", flush=True)
    if sys.argv[2] == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(5)
dist.all_reduce(total)
sys.exit("the collective ended without a member")
