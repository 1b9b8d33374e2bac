# SPDX-License-Identifier: BSD-3-Clause
"""A save that fails is reported at once on standard error, and the next call raises at all ranks. A tensor that changes while it
is copied is found."""
import contextlib
import io
import pathlib
import shutil
import sys
import tempfile
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
from outboard_training.checkpoint import Checkpoints, Failed

dist.init_process_group("outboard")
RANK = dist.get_rank()
box = [tempfile.mkdtemp() if RANK == 0 else None]
dist.broadcast_object_list(box)
folder = pathlib.Path(box[0]) / "saves"


def raises(call, words):
    try:
        call()
    except Failed as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no error that says: {words}")


net = torch.nn.Linear(2000, 4000)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
saves = Checkpoints(folder, keep=2)
saves.attach(optimizer)
state = {"net": net.state_dict()}
saves.save(state, 1)
saves.wait()
dist.barrier()

# Only rank 0 cannot write the next checkpoint: a file has the name of its folder.
said = io.StringIO()
with contextlib.redirect_stderr(said):
    if RANK == 0:
        saves.writer.settings["folder"] = str(folder / "latest")
        saves.writer.process.stdin.close()
        saves.writer.process.wait()
        saves.writer._listener.join()
    saves.save(state, 2)
    if RANK == 0:
        deadline = time.monotonic() + 60
        while "rank 0: checkpoint" not in said.getvalue():
            assert time.monotonic() < deadline, "nothing was said of a save that failed"
            time.sleep(0.01)
    dist.barrier()
    raises(lambda: saves.save(state, 3), "Not a directory")
    if RANK == 0:
        saves.writer.settings["folder"] = str(folder)
        saves.writer.process.stdin.close()
        saves.writer.process.wait()
        saves.writer._listener.join()
    dist.barrier()
saves.save(state, 4)
with contextlib.suppress(Failed):
    # Rank 1 may have waited for the part of rank 0 that failed.
    saves.wait()
dist.barrier()
assert (folder / "latest").read_text() == "step-4\n", (folder / "latest").read_text()
assert (folder / "step-1").exists()

# Only rank 0 copies what all ranks have, so rank 1 finds nothing wrong.
for attempt in range(5):
    saves.save(state, 5 + attempt)
    with torch.no_grad():
        net.bias.add_(1)
    found = torch.zeros(1)
    try:
        with contextlib.redirect_stderr(said):
            saves.wait()
    except Failed as error:
        assert "bias was changed outside of optimizer.step()" in str(error), error
        found += 1
    dist.all_reduce(found)
    if found:
        break
else:
    raise AssertionError("a change while the tensor was copied was not found")
dist.barrier()
saves.save(state, 20)
net(torch.ones(1, 2000)).sum().backward()
optimizer.step()
with torch.no_grad():
    net.bias.add_(1)
saves.wait()
saves.writer.save(21, {"no/folder": [b"x"]})
if RANK == 0:
    saves.writer.add(".metadata", b"")
with contextlib.redirect_stderr(said):
    raises(saves.close, "No such file or directory")
dist.barrier()
if RANK == 0:
    assert (folder / "latest").read_text() == "step-20\n"
    shutil.rmtree(box[0])
print(f"rank {RANK}: failed saves are told", file=sys.stdout, flush=True)
dist.destroy_process_group()
