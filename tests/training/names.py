# SPDX-License-Identifier: BSD-3-Clause
"""The old names of the modules of `outboard_training`: the same modules, with a warning; an error message where it is not
installed. Needs neither torch nor MPI: the package outboard_torch, whose __init__ needs them, is taken as a folder of modules."""
import importlib
import pathlib
import sys
import types
import warnings

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python"
package = types.ModuleType("outboard_torch")
package.__path__ = [str(PYTHON / "outboard_torch")]
sys.modules["outboard_torch"] = package


def refused(name, sentence):
    try:
        importlib.import_module(f"outboard_torch.{name}")
    except ModuleNotFoundError as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(f"outboard_torch.{name} was found")


def main():
    sys.path[:] = [folder for folder in sys.path if not (pathlib.Path(folder) / "outboard_training").exists()]
    refused("store", "pip install --no-build-isolation ./python/training")
    sys.path.insert(0, str(PYTHON / "training"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        from outboard_torch.store import Writer, newest
    said = [warning for warning in told if warning.category is DeprecationWarning]
    assert [str(warning.message) for warning in said] == ["outboard_torch.store is outboard_training.store now"], told
    assert said[0].filename == __file__, f"the warning names {said[0].filename}, not who imports"
    store = importlib.import_module("outboard_training.store")
    assert (Writer, newest) == (store.Writer, store.newest) and sys.modules["outboard_torch.store"] is store
    refused("validation", "examples/training/validation.py")
    assert "torch" not in sys.modules, "the store needs torch"
    print("old names: ok")


main()
