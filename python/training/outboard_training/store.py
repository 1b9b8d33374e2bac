# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints on disk, and the process that writes them. Nothing here needs torch.

A checkpoint is a folder `step-N` with files and `manifest.json`, which has the length and CRC-32 of each. It is made as
`step-N.RUN-K.incomplete`, where RUN tells this run from one before it, and K counts its saves: the writer process of each rank copies the rank's memory, writes and syncs the rank's files, then `prepared-R.json`. When
those of all ranks are there, the writer of rank 0 writes the manifest, renames the folder, and last renames `latest`. Each step is synced
before the next, so whatever dies at whatever instant, the newest folder without a suffix is whole; `newest` checks it all the same.

A writer outlives its trainer: what has been copied is still written. It is started as `python -I store.py`.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pickle
import queue
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import zlib

CHUNK = 4 << 20
# The largest pipe that a user may have (/proc/sys/fs/pipe-max-size).
PIPE = 1 << 20
# How long rank 0's writer waits for the files of the other ranks, in seconds; and how long once its trainer has ended.
PATIENCE, PATIENCE_ALONE = 600, 10
# The trainer's message once a save has been copied: the save's number, and whether the memory stayed the same until
# then.
VERDICT = struct.Struct("<Q?")


class Failed(RuntimeError):
    """A checkpoint could not be written. Earlier checkpoints are unaffected."""


# ---- Reading -------------------------------------------------------------------------------------------------------------------

def steps(folder):
    """The steps of the complete checkpoints, newest first."""
    names = (re.fullmatch(r"step-(\d+)", entry.name) for entry in pathlib.Path(folder).glob("step-*"))
    return sorted((int(name[1]) for name in names if name), reverse=True)


def flaw(checkpoint):
    """What is wrong with a checkpoint's files, or None. Reads all of them."""
    checkpoint = pathlib.Path(checkpoint)
    try:
        files = json.loads((checkpoint / "manifest.json").read_text())["files"]
        for name, (length, crc) in files.items():
            if pathlib.PurePath(name).name != name:
                return f"the manifest names {name!r}"
            with open(checkpoint / name, "rb") as file:
                seen, read = 0, 0
                while block := file.read(CHUNK):
                    seen, read = zlib.crc32(block, seen), read + len(block)
            if (read, seen) != (length, crc):
                return f"{name} has {read} bytes with CRC {seen:08x}, not {length} with {crc:08x}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def tidy(folder, run):
    """Removes incomplete checkpoints of other runs. One rank calls it, before the first save."""
    for suffix in "incomplete", "removed", "replaced":
        for left in pathlib.Path(folder).glob(f"step-*.{suffix}"):
            if f".{run}-" not in left.name:
                shutil.rmtree(left, ignore_errors=True)


def newest(folder):
    """The newest whole checkpoint as (step, path), or None. Damaged checkpoints are passed over and named on standard error."""
    for step in steps(folder):
        path = pathlib.Path(folder) / f"step-{step}"
        wrong = flaw(path)
        if wrong is None:
            return step, path
        print(f"outboard_torch: checkpoint {path} is damaged, the one before it is taken: {wrong}", file=sys.stderr)
    return None


# ---- The trainer's side --------------------------------------------------------------------------------------------------------

class Writer:
    """The writer process of a rank."""

    def __init__(self, folder, run, rank=0, size=1, keep=2, rate=None, cores=None):
        """`run` is a word that only the ranks of this run have. `rate` is the most bytes a second that are written to disk.
        `cores` are the cores on which the process may run."""
        if keep < 2:
            raise ValueError(f"keep is {keep}; at least 2 checkpoints are kept, so that one is always whole")
        self.settings = {"folder": str(folder), "run": run, "rank": rank, "size": size, "keep": keep, "rate": rate, "cores": cores}
        self.process = None
        self._done = threading.Condition()
        self._copied, self._committed, self._last = 0, 0, 0
        # Failed saves that were not raised yet; the functions that check whether the memory of a save is unchanged; the
        # saves whose memory has changed.
        self._failures, self._checks, self._spoiled = [], {}, set()

    def _start(self):
        verdicts, self._verdicts = os.pipe()
        self.settings["verdicts"] = verdicts
        self.process = subprocess.Popen([sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[verdicts])
        os.close(verdicts)
        # The description of a save has about a kilobyte for each tensor. A large pipe holds it, so the trainer need not
        # wait until the process reads it.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.process.stdin, fcntl.F_SETPIPE_SZ, PIPE)
        # Yama lets only ancestors read a process's memory, unless the process names another.
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(self.process.pid), 0, 0, 0)
        self._listener = threading.Thread(target=self._listen, args=(self.process, self._verdicts), daemon=True)
        self._listener.start()
        self._send(self.settings)

    def _send(self, thing):
        text = pickle.dumps(thing)
        self.process.stdin.write(struct.pack("<Q", len(text)) + text)
        self.process.stdin.flush()

    def _fail(self, text):
        """Prints at once that a save has failed. The next call that may raise does so. The caller holds the lock."""
        print(f"outboard_training: rank {self.settings['rank']}: {text}; the checkpoints before it are as they were", file=sys.stderr, flush=True)
        self._failures.append(text)

    def _listen(self, process, verdicts):
        for line in process.stdout:
            word, number, text = line.decode().rstrip("\n").split(" ", 2)
            number = int(number)
            changed = self._judge(number, verdicts) if word == "copied" else None
            with self._done:
                if changed:
                    self._fail(f"checkpoint of step {changed[0]}: {changed[1]}")
                if word == "failed" and number not in self._spoiled:
                    self._fail(text)
                if word != "committed":
                    self._copied = max(self._copied, number)
                if word != "copied":
                    self._committed = max(self._committed, number)
                self._done.notify_all()
        os.close(verdicts)
        with self._done:
            if self.process is process and self._last > self._committed:
                self._fail("the writer process has died")
                self._copied = self._committed = self._last
            self._done.notify_all()

    def _judge(self, number, verdicts):
        """Sends the process whether its copy is one consistent state. Returns what is wrong: the step and a
        sentence."""
        step, check = self._checks.pop(number, (None, None))
        wrong = check() if check else None
        if wrong:
            self._spoiled.add(number)
        with contextlib.suppress(OSError):
            os.write(verdicts, VERDICT.pack(number, not wrong))
        return (step, wrong) if wrong else None

    def failures(self):
        """The failed saves that were not raised yet. The caller must raise them."""
        with self._done:
            failures, self._failures = self._failures, []
        return failures

    def _raise(self):
        if failures := self.failures():
            raise Failed("; ".join(failures))

    def save(self, step, files, kept=None, check=None):
        """Starts to save. `files` has a name and parts for each file. A part is bytes, or (address, length) of memory of this
        process that stays unchanged until `wait_copied` returns. `kept` is kept alive until then. `check` is called in a thread
        once all has been copied, and returns None or what is wrong with the memory; then the save fails."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        with self._done:
            self._last += 1
            self._kept = kept
            self._checks[self._last] = step, check
        try:
            self._send({"number": self._last, "step": step, "pid": os.getpid(), "files": files})
        except BrokenPipeError:
            with self._done:
                if self._last > self._committed:
                    self._fail("the writer process has died")
                self._copied = self._committed = self._last

    def add(self, name, data):
        """Adds a small file of rank 0 to the last save. Without it the checkpoint is not complete."""
        try:
            self._send({"number": self._last, "name": name, "data": data})
        except BrokenPipeError:
            pass

    def wait_copied(self):
        """Waits until the memory of the last save has been copied. Returns the seconds."""
        began = time.monotonic()
        with self._done:
            self._done.wait_for(lambda: self._copied >= self._last)
            self._kept = None
        return time.monotonic() - began

    def wait(self):
        """Waits until the last save is complete or, at ranks other than 0, written. Raises Failed if a save since the last call
        has failed."""
        with self._done:
            self._done.wait_for(lambda: self._committed >= self._last)
        self._raise()

    def close(self):
        """Ends the process once it has written everything. Raises Failed if a save was not written and no call has raised this
        yet."""
        if self.process is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait()
            self._listener.join()
        self._raise()


# ---- The writer process --------------------------------------------------------------------------------------------------------

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def copy(pid, address, length):
    """Copies memory of another process."""
    block = bytearray(length)
    own = (ctypes.c_char * length).from_buffer(block)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    for at in range(0, length, CHUNK):
        size = min(CHUNK, length - at)
        to, source = Vector(ctypes.addressof(own) + at, size), Vector(address + at, size)
        got = libc.process_vm_readv(pid, ctypes.byref(to), 1, ctypes.byref(source), 1, 0)
        if got != size:
            raise OSError(ctypes.get_errno(), f"reading {size} bytes of process {pid}: {os.strerror(ctypes.get_errno())}")
    return block


class Process:
    def __init__(self, settings):
        self.settings = settings
        self.folder = pathlib.Path(settings["folder"])
        self.budget = time.monotonic()
        self.is_alone = False
        self.verdicts = open(settings["verdicts"], "rb", buffering=0)
        self.sound = {}
        # Ctrl-C is meant for the trainer. A session of its own would limit the process's priority to its own group of processes
        # (autogroup in sched(7)).
        os.setpgid(0, 0)
        if settings["cores"]:
            os.sched_setaffinity(0, settings["cores"])
        os.nice(5)

    def say(self, word, number, text=""):
        try:
            print(word, number, text.replace("\n", " "), flush=True)
        except BrokenPipeError:
            # The trainer has ended, but its saves are still written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def write(self, path, parts):
        """Writes and syncs a file. Returns its length and CRC."""
        crc, length = 0, 0
        with open(path, "wb") as file:
            for part in parts:
                view = memoryview(part)
                for at in range(0, len(view), CHUNK):
                    block = view[at:at + CHUNK]
                    if self.settings["rate"]:
                        time.sleep(max(0.0, self.budget - time.monotonic()))
                        self.budget = max(self.budget, time.monotonic()) + len(block) / self.settings["rate"]
                    file.write(block)
                    crc, length = zlib.crc32(block, crc), length + len(block)
            file.flush()
            os.fsync(file.fileno())
        return [length, crc]

    def is_sound(self, number):
        """Whether the memory of a save was unchanged until it was copied. It was, if the trainer has ended since."""
        while number not in self.sound:
            verdict = self.verdicts.read(VERDICT.size)
            if len(verdict) < VERDICT.size:
                return True
            of, is_sound = VERDICT.unpack(verdict)
            self.sound[of] = is_sound
        return self.sound.pop(number)

    def save(self, job, copied, described):
        """Saves. `described` returns the files that rank 0 adds once it knows those of all ranks."""
        number, step = job["number"], job["step"]
        rank, size = self.settings["rank"], self.settings["size"]
        making = self.folder / f"step-{step}.{self.settings['run']}-{number}.incomplete"
        try:
            making.mkdir(parents=True, exist_ok=True)
            files = {name: self.write(making / name, parts) for name, parts in copied.items()}
            if not self.is_sound(number):
                raise OSError("a tensor was changed while it was copied")
            sync(making)
            mark = making / f"prepared-{rank}.json"
            self.write(mark.with_suffix(".new"), [json.dumps(files).encode()])
            os.rename(mark.with_suffix(".new"), mark)
            sync(making)
            if rank == 0:
                for name, data in described().items():
                    files[name] = self.write(making / name, [data])
                self.commit(step, making, files, size)
                self.remove_failed(number)
        except Exception as error:  # noqa: BLE001  (the trainer hears of it, and the checkpoint stays incomplete)
            if rank == 0:
                shutil.rmtree(making, ignore_errors=True)
            else:
                # Rank 0 need not wait for this file.
                with contextlib.suppress(OSError):
                    (making / f"failed-{rank}").write_text(str(error))
            self.say("failed", number, f"checkpoint {making}: {error}")
            return
        self.say("committed", number)

    def remove_failed(self, number):
        """Removes the remains of earlier saves: all ranks have ended them."""
        for left in self.folder.glob(f"step-*.{self.settings['run']}-*.incomplete"):
            if int(left.name.removesuffix(".incomplete").rsplit("-", 1)[1]) < number:
                shutil.rmtree(left, ignore_errors=True)

    def commit(self, step, making, files, size):
        began = time.monotonic()
        for rank in range(1, size):
            mark = making / f"prepared-{rank}.json"
            while not mark.exists():
                with contextlib.suppress(FileNotFoundError):
                    raise OSError(f"rank {rank} of {size} could not write its part: {(making / f'failed-{rank}').read_text()}")
                patience = PATIENCE_ALONE if self.is_alone else PATIENCE
                if time.monotonic() > began + patience:
                    raise OSError(f"rank {rank} of {size} has not written its part within {patience} s")
                time.sleep(0.01)
            files.update(json.loads(mark.read_text()))
        self.write(making / "manifest.json", [json.dumps({"step": step, "files": files}).encode()])
        for mark in making.glob("prepared-*.json"):
            mark.unlink()
        sync(making)
        done = self.folder / f"step-{step}"
        old = self.folder / f"step-{step}.replaced"
        if done.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(done, old)
        os.rename(making, done)
        sync(self.folder)
        self.write(self.folder / "latest.new", [f"{done.name}\n".encode()])
        os.rename(self.folder / "latest.new", self.folder / "latest")
        sync(self.folder)
        shutil.rmtree(old, ignore_errors=True)
        for other in steps(self.folder)[self.settings["keep"]:]:
            # The name of a checkpoint that is being removed is not valid.
            gone = self.folder / f"step-{other}.removed"
            os.rename(self.folder / f"step-{other}", gone)
            shutil.rmtree(gone, ignore_errors=True)


def read(stream):
    """Reads the trainer's next message, or None if it has ended, perhaps within a message."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length, = struct.unpack("<Q", head)
    body = stream.read(length)
    return pickle.loads(body) if len(body) == length else None


def receive(process, stream, jobs):
    """Copies the memory of each save as it comes. One copied save may wait while another is written; the next waits
    here."""
    while (job := read(stream)) is not None:
        if "files" in job:
            try:
                job["copied"] = {name: [part if isinstance(part, bytes) else copy(job["pid"], *part) for part in parts]
                                 for name, parts in job["files"].items()}
            except OSError as error:
                process.say("failed", job["number"], f"step {job['step']}: {error}")
                continue
            process.say("copied", job["number"])
        jobs.put(job)
    process.is_alone = True
    jobs.put(None)


def main():
    stream = sys.stdin.buffer
    settings = read(stream)
    if settings is None:
        return
    process, jobs = Process(settings), queue.Queue(maxsize=2)
    threading.Thread(target=receive, args=(process, stream, jobs), daemon=True).start()
    ahead = []
    while (job := ahead.pop() if ahead else jobs.get()) is not None:
        if "files" not in job:
            continue

        def described(number=job["number"]):
            added = jobs.get()
            if added is None or added["number"] != number or "name" not in added:
                # This file belongs to the save that the loop below takes next.
                ahead.append(added)
                raise OSError("the trainer ended before it described the checkpoint")
            return {added["name"]: added["data"]}

        process.save(job, job.pop("copied"), described)


if __name__ == "__main__":
    main()
