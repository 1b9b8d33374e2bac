# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints written beside the training: a StorageWriter of torch.distributed.checkpoint over the writer processes of `store.py`.

    saves = Checkpoints("runs/one", keep=2)
    saves.attach(optimizer)                   # parameters change in its step only
    step = saves.load(state) or 0             # the newest whole checkpoint, or None
    ...
    optimizer.step()
    saves.save(state, step)                   # returns at once
    saves.close()

A process of each rank copies parameters and the state of attached optimizers out of this process's memory between one `optimizer.step()`
and the next, which waits only if the copy is not over. Everything else (buffers, numbers, the state of generators) is copied at once. Stock
`torch.distributed.checkpoint.load` reads the result. Each rank must save the same state dict's keys in the same order, as for `dcp.save`.
"""
import ctypes
import functools
import io
import os
import pathlib
import pickle
import uuid
import zipfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from . import store
from .store import Failed

__all__ = ["Checkpoints", "Failed"]


def _changed(versions):
    """An error text if a tensor was written in place since its version was noted, or None."""
    names = [name for name, tensor, version in versions if tensor._version != version]
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (f"{names[0]}{more} was changed outside of optimizer.step() while it was copied. After attach(optimizer) parameters and the optimizer's state may "
            "change in its step only; make other changes before save(), or after wait_copied()")


class _Storage(FileSystemWriter):
    """Plans like the stock writer, and leaves the bytes to the writer process."""

    def __init__(self, folder, writer):
        super().__init__(folder)
        self.writer, self.step, self.optimizers, self._forms = writer, 0, [], {}

    def prepare_local_plan(self, plan):
        return plan

    def write_data(self, plan, planner):
        name = f"{plan.storage_data.prefix}0.distcp"
        stable, parts, kept, results, at = self._stable(), [], [], [], 0
        # The versions of the tensors that are copied later; they must not change until then.
        versions = []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                body = [planner.resolve_data(item).getvalue()]
            else:
                tensor = planner.resolve_data(item).detach()
                body = self._saved(item.index, tensor, stable)
                kept.append(tensor)
                if not all(isinstance(part, bytes) for part in body):
                    versions.append((item.index.fqn, tensor, tensor._version))
            length = sum(len(part) if isinstance(part, bytes) else part[1] for part in body)
            results.append(WriteResult(index=item.index, size_in_bytes=length, storage_data=_StorageInfo(name, at, length)))
            parts, at = parts + body, at + length
        self.writer.save(self.step, {name: parts}, kept, functools.partial(_changed, versions))
        done = Future()
        done.set_result(results)
        return done

    def finish(self, metadata, results):
        metadata.storage_data = {one.index: one.storage_data for some in results for one in some}
        metadata.storage_meta = self.storage_meta()
        metadata.version = getattr(dcp.filesystem, "CURRENT_DCP_VERSION", None)
        self.writer.add(".metadata", pickle.dumps(metadata))

    def _stable(self):
        """The addresses of memory that changes only in the steps of optimizers."""
        tensors = []
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                tensors += group["params"]
            for state in optimizer.state.values():
                tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
        local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
        return {tensor.untyped_storage().data_ptr() for tensor in local}

    def _saved(self, index, tensor, stable):
        """A tensor as torch.save writes it: the bytes before the elements, the elements, and the bytes after them."""
        is_stable = tensor.is_cpu and tensor.is_contiguous() and tensor.untyped_storage().data_ptr() in stable
        if not is_stable:
            tensor = tensor.cpu().contiguous()
        length = tensor.nbytes
        form = (tensor.shape, tensor.dtype)
        if self._forms.get(index, (None,))[0] != form:
            file = io.BytesIO()
            torch.save(torch.zeros_like(tensor), file)
            whole = file.getvalue()
            with zipfile.ZipFile(file) as archive:
                entry = next(info for info in archive.infolist() if info.filename.endswith("/data/0"))
            # The header contains the lengths of the entry's name and of its extra field.
            head = entry.header_offset
            begin = head + 30 + int.from_bytes(whole[head + 26:head + 28], "little") + int.from_bytes(whole[head + 28:head + 30], "little")
            # The archive has the CRC of zeros, which torch.load does not check; the manifest has the CRC of the file.
            self._forms[index] = form, whole[:begin], whole[begin + length:]
        _, before, after = self._forms[index]
        if length == 0:
            return [before + after]
        data = (tensor.data_ptr(), length) if is_stable else ctypes.string_at(tensor.data_ptr(), length)
        return [before, data, after]


class Checkpoints:
    """The checkpoints in a folder that all ranks of `group` see."""

    def __init__(self, folder, keep=2, rate=None, cores=None, group=None):
        """`keep` is the number of complete checkpoints that stay, at least 2. `rate` is the most bytes a second that each rank
        writes to disk. `cores` are the cores on which the writer processes may run."""
        self.folder, self.group = pathlib.Path(folder).resolve(), group
        self.is_distributed = dist.is_initialized()
        self.rank = dist.get_rank(group) if self.is_distributed else 0
        size = dist.get_world_size(group) if self.is_distributed else 1
        run = self._from_first(uuid.uuid4().hex[:12])
        if self.rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            store.tidy(self.folder, run)
        self.writer = store.Writer(self.folder, run, self.rank, size, keep, rate, cores)
        self.storage = _Storage(self.folder, self.writer)
        # Tensors that all ranks have (DDP) are saved by the first rank, because DDP gives its buffers to all ranks.
        self.planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True, enable_plan_caching=True)
        # The seconds that the steps of optimizers have waited for copies.
        self.stalled = 0.0

    def _from_first(self, value):
        """A value that the group's first rank has, at all ranks."""
        if not self.is_distributed:
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        return box[0]

    def attach(self, optimizer):
        """Declares that the optimizer's parameters and state change only in its `step`. Without this they are copied at
        once."""
        self.storage.optimizers.append(optimizer)
        optimizer.register_step_pre_hook(self._before_step)

    def _before_step(self, *_):
        self.stalled += self.writer.wait_copied()

    def save(self, state_dict, step):
        """Starts to save. Collective. Raises Failed at all ranks if an earlier save has failed at some rank and no call has
        raised this yet. Nothing is saved then, and the next call saves again."""
        failures = self.writer.failures()
        if self.is_distributed:
            of_all = [None] * dist.get_world_size(self.group)
            dist.all_gather_object(of_all, failures, group=self.group)
            failures = [failure for one in of_all for failure in one]
        if failures:
            raise Failed("; ".join(dict.fromkeys(failures)))
        self.storage.step = step
        dcp.save(state_dict, storage_writer=self.storage, planner=self.planner, process_group=self.group)

    def wait_copied(self):
        """Waits until the memory of the last save has been copied, so that all of it may be changed. The `step` of an attached
        optimizer does this, too."""
        self.writer.wait_copied()

    def load(self, state_dict):
        """Loads the newest whole checkpoint into the state dict. Collective. Returns its step, or None."""
        found = self._from_first(store.newest(self.folder) if self.rank == 0 else None)
        if found is None:
            return None
        dcp.load(state_dict, checkpoint_id=os.fspath(found[1]), process_group=self.group)
        return found[0]

    def wait(self):
        """Waits until the last save is complete. Raises Failed if a save has failed and no call has raised this yet."""
        self.writer.wait()

    def close(self):
        """Ends the writer processes once they have written everything. Raises Failed if a save was not written and no call has
        raised this yet."""
        self.writer.close()
