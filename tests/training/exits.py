# SPDX-License-Identifier: BSD-3-Clause
"""Ways in which a process ends while others wait for it: `exits.py HOW`. tests/training/run knows the right exit code of
each."""
import argparse
import datetime
import os
import sys

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist

HOW = sys.argv[1]
SHORT = datetime.timedelta(seconds=1)


def begin(timeout=datetime.timedelta(minutes=30)):
    dist.init_process_group("outboard", timeout=timeout)
    dist.barrier()


def leave():
    if HOW == "sys.exit":
        sys.exit(3)
    if HOW == "quit":
        raise SystemExit(4)
    if HOW == "words":
        sys.exit("this rank has nothing more to do")
    if HOW == "arguments":
        argparse.ArgumentParser().parse_args(["--none"])
    raise ValueError("this rank fails")


def forked():
    """Two children: one that ends like any process, and one that torch's DataLoader makes."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the forked child ended with status {status:#x}"
    loader = torch.utils.data.DataLoader(range(8), batch_size=2, num_workers=2, multiprocessing_context="fork")
    total = torch.tensor([sum(int(batch.sum()) for batch in loader)])
    dist.all_reduce(total)
    assert total.item() == 28 * dist.get_world_size()


def recovered():
    """A collective times out because one rank does not come. Then all make a new group and go on."""
    begin(SHORT)
    if dist.get_rank() == 0:
        try:
            dist.all_reduce(torch.ones(1))
            sys.exit("it did not time out")
        except RuntimeError as error:
            assert "timeout" in str(error), error
    dist.destroy_process_group()
    begin()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()


if HOW == "recovered":
    recovered()
else:
    begin()
    if HOW == "fork":
        forked()
    elif HOW == "pending":
        # No rank waits for these operations, and they end all the same.
        works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(8)]
        works[0].get_future().then(lambda done: None)
    elif dist.get_rank() == 1:
        leave()
    else:
        dist.all_reduce(torch.ones(1))
