# SPDX-License-Identifier: BSD-3-Clause
"""Outboard as a backend of torch.distributed: `init_process_group("outboard")`, which imports this.

Under `mpirun` (or srun, mpiexec) the import also sets what `env://` reads (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), with
the store of c10d in rank 0. Under `torchrun` MPI starts through the store of the first process group.
"""
import atexit
import multiprocessing.util
import os
import socket
import sys

import torch  # noqa: F401  (its libraries first)
import torch.distributed as dist

import outboard_torch_autoload

from . import _backend

__all__ = ["node", "rank", "size"]

# Rank and size in MPI_COMM_WORLD. `node` is the lowest rank of this process's node.
node, rank, size = _backend.node, _backend.rank, _backend.size
_store = _finalizer = None


def _create(options, _unused):
    global _finalizer
    if _finalizer is None:
        # A process of multiprocessing ends without running atexit's functions.
        _finalizer = multiprocessing.util.Finalize(None, _finalize_child, exitpriority=0)
    return _backend.create(options.store, options.group_rank, options.group_size, options.group_id, options.timeout.total_seconds())


def _set_environment():
    """Sets the variables that torchrun would have set. Rank 0 serves the store, on a port that the system chooses."""
    global _store
    name = ""
    if _backend.rank() == 0:
        _store = dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        # In a job on one host no other host must resolve the name.
        local = os.environ.get("MPI_LOCALNRANKS") == str(_backend.size())
        host = os.environ.get("MASTER_ADDR") or ("127.0.0.1" if local else socket.gethostname())
        name = f"{host} {_store.port}"
    host, port = _backend.share(name).split()
    local = next((os.environ[key] for key in ("MPI_LOCALRANKID", "SLURM_LOCALID") if key in os.environ), str(_backend.rank()))
    os.environ.update(RANK=str(_backend.rank()), WORLD_SIZE=str(_backend.size()), LOCAL_RANK=local, MASTER_ADDR=host, MASTER_PORT=port,
                      # The store exists already, as under torchrun's agent, so all ranks are its clients.
                      TORCHELASTIC_USE_AGENT_STORE="True")


# From here on C code ends MPI, once the process has its exit code.
atexit.register(_backend.detach)


def _finalize_child():
    """Ends MPI in a process of multiprocessing, in which no other code does. After an exception it does not, because other ranks
    may wait for this process."""
    error = sys.exc_info()[1]
    if multiprocessing.parent_process() is not None and (error is None or isinstance(error, SystemExit) and not error.code):
        _backend.finalize()


outboard_torch_autoload.register()
if outboard_torch_autoload.is_launched():
    # All ranks start MPI here, so that the first group may have only some of them.
    _backend.init()
    if "MASTER_PORT" not in os.environ:
        _set_environment()
