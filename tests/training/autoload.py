# SPDX-License-Identifier: BSD-3-Clause
"""A program that does not import outboard_torch: `autoload.py`; or that has to, since torch loads no backends: `TORCH_DEVICE_BACKEND_AUTOLOAD=0 autoload.py`."""
import os
import sys

import torch
import torch.distributed as dist

if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
    assert "outboard" not in dist.Backend.backend_list and "outboard_torch_autoload" not in sys.modules
    import outboard_torch  # noqa: F401
else:
    assert "outboard" in dist.Backend.backend_list
    assert "outboard_torch" not in sys.modules, "torch alone has started MPI"
dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()
assert size > 1 and int(os.environ["LOCAL_RANK"]) == rank, (rank, size)
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == size * (size + 1) / 2, total
assert dist.get_backend() == "outboard" and sys.modules["outboard_torch"].rank() == rank
dist.destroy_process_group()
