# SPDX-License-Identifier: BSD-3-Clause
"""Modules that have become those of `outboard_training`, under their old names."""
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
    # The frames between are this function, the module of the old name, and the import system's, which warnings leave out.
    warnings.warn(f"outboard_torch.{name} is outboard_training.{name} now", DeprecationWarning, stacklevel=3)
    sys.modules[f"outboard_torch.{name}"] = module
    return module
