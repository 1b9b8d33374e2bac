# SPDX-License-Identifier: BSD-3-Clause
"""Modules that are now modules of `outboard_training`, under their old names."""
import importlib
import sys
import warnings


def moved(name):
    """Makes `outboard_torch.NAME` the module `outboard_training.NAME`, with a warning. Returns it."""
    try:
        module = importlib.import_module(f"outboard_training.{name}")
    except ModuleNotFoundError as error:
        if error.name != "outboard_training":
            raise
        raise ModuleNotFoundError(f"outboard_torch.{name} is outboard_training.{name} now: pip install --no-build-isolation ./python/training",
                                  name=error.name) from None
    # The frames in between belong to this function, the module of the old name, and the import system, whose frames
    # warnings ignore.
    warnings.warn(f"outboard_torch.{name} is outboard_training.{name} now", DeprecationWarning, stacklevel=3)
    sys.modules[f"outboard_torch.{name}"] = module
    return module
