# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tensors of a checkpoint into one safetensors file (needs the package safetensors):

    python -m outboard_training.export runs/one model.safetensors                 the newest whole checkpoint's `model`
    python -m outboard_training.export runs/one all.safetensors --only ""         all tensors, the optimizer's, too
"""
import argparse
import pathlib
import sys
import warnings

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from . import store

__all__ = ["export"]


def export(checkpoint, file, only="model."):
    """Writes the tensors whose names begin with `only` to a file, without this prefix. `checkpoint` is the folder of a checkpoint
    that torch.distributed.checkpoint can read. Returns the number of tensors. Raises ValueError if there is none."""
    from safetensors.torch import save_file
    described = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in described.items()
               if name.startswith(only) and isinstance(one, TensorStorageMetadata)}
    if not tensors:
        raise ValueError(f"no tensor of {checkpoint} has a name that begins with {only!r}; there are {', '.join(sorted(described)[:5])}, ...")
    with warnings.catch_warnings():
        # The warning says that this process is alone, which is intended.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(tensors, checkpoint_id=checkpoint, no_dist=True)
    save_file({name.removeprefix(only): tensor for name, tensor in tensors.items()}, file, {"format": "pt"})
    return len(tensors)


def main():
    parser = argparse.ArgumentParser(prog="python -m outboard_training.export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="of the checkpoints, or of one (step-N)")
    parser.add_argument("file")
    parser.add_argument("--step", type=int, help="the checkpoint of that step, instead of the newest")
    parser.add_argument("--only", default="model.", help="the tensors whose names begin so, without that (%(default)s)")
    chosen = parser.parse_args()
    path = chosen.folder if (chosen.folder / ".metadata").exists() else None
    if chosen.step is not None:
        path = chosen.folder / f"step-{chosen.step}"
    elif path is None:
        path = next((found[1] for found in [store.newest(chosen.folder)] if found), None)
    if path is None or not (path / ".metadata").exists():
        parser.error(f"{path or chosen.folder} has no whole checkpoint")
    try:
        count = export(path, chosen.file, chosen.only)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    print(f"{chosen.file}: {count} tensors of {path}")


if __name__ == "__main__":
    sys.exit(main())
