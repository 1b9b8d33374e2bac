# SPDX-License-Identifier: BSD-3-Clause
"""What `import torch` runs of outboard_torch, by the entry point in the group `torch.backends`: it makes the backend known, and loads nothing of it. MPI
starts with the first group, or with `import outboard_torch`. TORCH_DEVICE_BACKEND_AUTOLOAD=0 is torch's way to leave it out."""
import functools
import os

import torch.distributed as dist


def is_launched():
    """Whether a launcher of MPI started this process."""
    return any(name in os.environ for name in ("OUTBOARD_JOB_FD", "PMI_FD", "PMIX_NAMESPACE"))


def register():
    """Makes the backend known to torch.distributed, where there is one."""
    if not dist.is_available() or "outboard" in dist.Backend.backend_list:
        return
    dist.Backend.register_backend("outboard", _create, extended_api=True, devices=["cpu"])
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers
    handlers["env"] = _with_environment(handlers["env"])


def _create(options, unused):
    import outboard_torch
    return outboard_torch._create(options, unused)


def _with_environment(handler):
    """`env://` is read before the backend is made. Where MPI's launcher has set none of it, the import does."""
    @functools.wraps(handler)
    def handle(url, *arguments, **named):
        if "MASTER_PORT" not in os.environ and is_launched():
            import outboard_torch  # noqa: F401
        return handler(url, *arguments, **named)
    return handle
