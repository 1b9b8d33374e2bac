# SPDX-License-Identifier: BSD-3-Clause
"""The part of outboard_torch that `import torch` runs, by the entry point in the group `torch.backends`. It registers the backend
without loading it. MPI starts with the first group, or with `import outboard_torch`. Torch leaves this part out if
TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set."""
import functools
import os

import torch.distributed as dist


def is_launched():
    """Whether a launcher of MPI started this process."""
    return any(name in os.environ for name in ("OUTBOARD_JOB_FD", "PMI_FD", "PMIX_NAMESPACE"))


def register():
    """Registers the backend with torch.distributed, if this torch has torch.distributed."""
    if not dist.is_available() or "outboard" in dist.Backend.backend_list:
        return
    dist.Backend.register_backend("outboard", _create, extended_api=True, devices=["cpu"])
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers
    handlers["env"] = _with_environment(handlers["env"])


def _create(options, unused):
    import outboard_torch
    return outboard_torch._create(options, unused)


def _with_environment(handler):
    """`env://` is read before the backend is made. If MPI's launcher has set no variable of it, the import sets
    them."""
    @functools.wraps(handler)
    def handle(url, *arguments, **named):
        if "MASTER_PORT" not in os.environ and is_launched():
            import outboard_torch  # noqa: F401
        return handler(url, *arguments, **named)
    return handle
