# SPDX-License-Identifier: BSD-3-Clause
"""Validation beside the training: a process loads each new checkpoint of `outboard_training.checkpoint`, and runs the program's function on it.
An example, to be copied beside one's program.

    def validator(name):                          # runs in the other process
        model = models[name]()
        state = {"model": model.state_dict()}     # the part of the checkpoint that it wants
        def check(step):                          # the checkpoint of this step has been loaded into `state`
            model.load_state_dict(state["model"])
            return {"loss": ...}
        return state, check

    validation = Validation(saves.folder, validator, "resnet20", cores={7})
    for step, result in validation.results():     # those that have come since
        ...
    validation.close()                            # once the last checkpoint is complete: waits for its result

The process is started anew (multiprocessing's `spawn`), so the program's main module must be importable: `if __name__ == "__main__"`. It
takes the newest checkpoint each time: if the training saves faster than it validates, those between are left out.
"""
import atexit
import contextlib
import multiprocessing
import os
import pathlib
import traceback
import warnings

from outboard_training import store

__all__ = ["Failed", "Validation"]

# Seconds between two looks into the folder.
LOOK = 0.1


class Failed(RuntimeError):
    """The function raised an error, or its process has died. The training is unaffected."""


class Validation:
    """A process that validates checkpoints. One rank of the job makes it."""

    def __init__(self, folder, validator, *arguments, cores=None):
        """`validator(*arguments)` returns a state dict and a function of the step. `cores` are the cores on which the
        process may run."""
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_validate, args=(there, os.fspath(folder), cores, validator, arguments))
        self._process.start()
        there.close()
        # A program that ends without `close` does not wait for a result.
        atexit.register(self._process.terminate)

    def results(self):
        """The pairs (step, result) since the last call, without waiting. Raises Failed if a result is an error."""
        while self._here is not None and self._here.poll():
            yield from self._next()

    def close(self):
        """Waits for the newest checkpoint's result and ends the process. Returns the pairs (step, result) that `results` has not
        returned."""
        if self._here is None:
            return []
        with contextlib.suppress(BrokenPipeError):
            self._here.send("close")
        left = []
        while self._here is not None:
            left += self._next()
        return left

    def _next(self):
        """The next result, or None at the end."""
        try:
            step, result, error = self._here.recv()
        except (EOFError, ConnectionResetError):
            self._here = None
            self._process.join()
            atexit.unregister(self._process.terminate)
            if self._process.exitcode:
                raise Failed(f"the validating process has died: exit code {self._process.exitcode}") from None
            return []
        if error:
            raise Failed(f"validation of step {step}: {error}")
        return [(step, result)]


def _validate(trainer, folder, cores, validator, arguments):
    if cores:
        os.sched_setaffinity(0, cores)
    from torch.distributed import checkpoint as dcp
    # The warning says that this process is alone, which is intended.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    folder, last, is_closing = pathlib.Path(folder), None, False
    state, check = validator(*arguments)
    while True:
        step = next(iter(store.steps(folder)), None)
        if step != last:
            try:
                dcp.load(state, checkpoint_id=folder / f"step-{step}", no_dist=True)
                result, error = check(step), None
            except Exception as problem:  # noqa: BLE001  (the trainer hears of it)
                if not (folder / f"step-{step}").exists():
                    # The checkpoint was removed meanwhile, so there is a newer one.
                    continue
                result, error = None, "".join(traceback.format_exception(problem))
            last = step
            try:
                trainer.send((step, result, error))
            except BrokenPipeError:
                return
        elif is_closing:
            return
        # The end of the trainer counts as its order to end.
        elif trainer.poll(LOOK):
            try:
                trainer.recv()
            except EOFError:
                return
            is_closing = True
