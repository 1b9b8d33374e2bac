# SPDX-License-Identifier: BSD-3-Clause
"""The example's validation.py: results of checkpoints, errors and deaths of the other process. Runs alone, without MPI."""
import os
import pathlib
import signal
import sys
import tempfile
import time

import torch
from torch.distributed import checkpoint as dcp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/training"))
from validation import Failed, Validation  # noqa: E402


def save(folder, step, value):
    """Saves as outboard_training.checkpoint does: the folder gets its name last."""
    path = pathlib.Path(folder) / f"step-{step}"
    dcp.save({"model": {"weight": torch.full((3,), value)}, "other": torch.ones(2)}, checkpoint_id=f"{path}.new", no_dist=True)
    os.rename(f"{path}.new", path)


def validator(bad):
    state = {"model": {"weight": torch.zeros(3)}}

    def check(step):
        if step == bad:
            raise ValueError("weights are bad")
        return {"sum": state["model"]["weight"].sum().item(), "process": os.getpid()}

    return state, check


def until(function):
    """Waits until the function returns something, and returns that."""
    limit = time.monotonic() + 60
    while not (value := list(function())):
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.05)
    return value


def main():
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        validation = Validation(folder, validator, 3, cores={core})
        assert list(validation.results()) == [], "a result of nothing"
        save(folder, 1, 2.0)
        (step, result), = until(validation.results)
        assert (step, result["sum"]) == (1, 6.0) and result["process"] != os.getpid(), (step, result)
        assert os.sched_getaffinity(result["process"]) == {core}
        save(folder, 3, 1.0)
        try:
            until(validation.results)
            raise AssertionError("no error of step 3")
        except Failed as error:
            assert "step 3" in str(error) and "weights are bad" in str(error), error
        # Validation goes on after an error, and ends with the newest checkpoint.
        save(folder, 4, 4.0)
        save(folder, 5, 5.0)
        left = validation.close()
        assert [one[0] for one in left][-1] == 5 and left[-1][1]["sum"] == 15.0, left
        assert validation.close() == [] and list(validation.results()) == []
        print("ok results, errors, the last one")

        validation = Validation(folder, validator, None)
        (_, result), = until(validation.results)
        os.kill(result["process"], signal.SIGKILL)
        try:
            until(validation.results)
            raise AssertionError("no error of a killed process")
        except Failed as error:
            assert "has died" in str(error), error
        assert validation.close() == []
        print("ok a killed process")


if __name__ == "__main__":
    sys.exit(main())
