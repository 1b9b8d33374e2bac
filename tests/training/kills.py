# SPDX-License-Identifier: BSD-3-Clause
"""Kills the trainer, its writer process, or both at seeded instants, fills the disk, truncates files and flips bits: the newest whole
checkpoint is always found, and has the bytes of its step. No torch: `store.py` is all that writes.

    kills.py [--points N] [--seed S]"""
import argparse
import contextlib
import ctypes
import importlib.util
import io
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("store", HERE.parent.parent / "python/training/outboard_training/store.py")
store = importlib.util.module_from_spec(spec)
spec.loader.exec_module(store)

RANKS, BYTES = 2, 3 << 20


def content(step, rank):
    return bytes([(step * 7 + rank) % 251]) * BYTES


def train(folder, run, rank, begin):
    """Saves one step after the other until it is killed. The writer copies half of the memory, and the rest is sent with
    the description."""
    writer = store.Writer(folder, run, rank, RANKS)
    memory = ctypes.create_string_buffer(BYTES // 2)
    for step in range(begin, 1 << 30):
        data = content(step, rank)
        writer.wait_copied()
        ctypes.memmove(memory, data, BYTES // 2)
        writer.save(step, {f"part-{rank}": [(ctypes.addressof(memory), BYTES // 2), data[BYTES // 2:]]})
        print(writer.process.pid, flush=True)
        if rank == 0:
            writer.add("description", str(step).encode())
        try:
            writer.wait()
        except store.Failed as error:
            print(error, file=sys.stderr, flush=True)
        # Like a trainer whose ranks compute in step.
        time.sleep(0.01)


def check(folder, least, what):
    """Returns the newest step, which must not be older than `least`. All other checkpoints must be whole, too."""
    found = store.newest(folder)
    assert found is not None or least is None, f"{what}: no checkpoint is left"
    if found is None:
        return None
    step, path = found
    assert least is None or step >= least, f"{what}: step {step} is older than {least}"
    for rank in range(RANKS):
        assert (path / f"part-{rank}").read_bytes() == content(step, rank), f"{what}: rank {rank}'s bytes of step {step} are wrong"
    for other in store.steps(folder):
        wrong = store.flaw(folder / f"step-{other}")
        assert wrong is None, f"{what}: step {other}: {wrong}"
    return step


def kill(pid):
    """Kills a process that this test started, and waits until it is gone."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, signal.SIGKILL)
        while stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.001)
    except (ProcessLookupError, FileNotFoundError):
        pass


def kill_at(folder, chance, point, least):
    run = f"run{point}"
    store.tidy(folder, run)
    begin = (least or 0) + 1
    ranks = [subprocess.Popen([sys.executable, __file__, "--train", folder, run, str(rank), str(begin)], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) for rank in range(RANKS)]
    writer = int(ranks[0].stdout.readline())
    time.sleep(chance.uniform(0, 0.4))
    whom = chance.choice(["trainer", "writer", "both"])
    victims = {"trainer": [ranks[0].pid], "writer": [writer], "both": [writer, ranks[0].pid]}[whom]
    for pid in victims:
        kill(pid)
    time.sleep(chance.uniform(0, 0.1))
    writers = set()
    for rank in ranks:
        rank.kill()
        writers.update(int(line) for line in rank.communicate()[0].split())
    # Writers outlive trainers, and finish; in some rounds they are killed a moment later.
    time.sleep(chance.uniform(0, 0.3))
    for pid in writers | {writer}:
        kill(pid)
    return check(folder, least, f"point {point}, {whom} killed")


def damage(folder, chance):
    """A truncated file, a flipped bit, a manifest that is not JSON, one that names a file elsewhere: each time the checkpoint
    before is taken."""
    for kind in "truncated", "flipped", "garbled", "astray", "missing":
        with tempfile.TemporaryDirectory() as copy_:
            copy = pathlib.Path(copy_) / "saves"
            shutil.copytree(folder, copy)
            newest, before = store.steps(copy)[:2]
            path = copy / f"step-{newest}"
            file = path / f"part-{chance.randrange(RANKS)}"
            if kind == "truncated":
                os.truncate(file, chance.randrange(BYTES))
            elif kind == "flipped":
                data = bytearray(file.read_bytes())
                data[chance.randrange(BYTES)] ^= 1 << chance.randrange(8)
                file.write_bytes(data)
            elif kind == "garbled":
                (path / "manifest.json").write_text('{"files": [')
            elif kind == "astray":
                (path / "manifest.json").write_text('{"files": {"../../x": [0, 0]}}')
            else:
                file.unlink()
            found = store.newest(copy)
            assert found and found[0] == before, f"{kind}: {found}, not step {before}"


def undescribed(folder):
    """A trainer that ends between a save and its description leaves no writer behind, and no checkpoint."""
    writer = store.Writer(folder, "undescribed")
    writer.save(1 << 30, {"part": [b"x"]})
    writer.process.stdin.close()
    writer.process.wait(60)
    assert 1 << 30 not in store.steps(folder)


def repeated(folder):
    """A step that failed at one rank and is saved again has nothing of the first attempt."""
    step, (first, second) = 1 << 30, (store.Writer(folder, "repeated", rank, RANKS) for rank in range(RANKS))
    first.save(step, {"no/folder": [b"x"]})
    first.add("description", b"")
    try:
        first.wait()
        raise AssertionError("a file in a folder that is not there was written")
    except store.Failed:
        second.save(step, {"part-1": [b"old"]})
        second.wait()
    first.save(step, {"part-0": [b"new"]})
    first.add("description", b"")
    time.sleep(0.2)
    second.save(step, {"part-1": [b"new"]})
    second.wait()
    first.wait()
    found, path = store.newest(folder)
    assert found == step and (path / "part-1").read_bytes() == b"new", (found, path)
    assert not list(folder.glob("*.repeated-*")), "what failed is left"
    first.close()
    second.close()


def told(folder):
    """Each save that fails is reported at once, and `close` raises. A save whose memory has changed fails, too."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        writer = store.Writer(folder, "told")
        memory = ctypes.create_string_buffer(BYTES)
        writer.save(1, {"part": [(ctypes.addressof(memory), BYTES)]}, check=lambda: None)
        writer.add("description", b"")
        writer.wait()
        for step in range(2, 12):
            writer.save(step, {"no/folder": [b"x"]})
            writer.add("description", b"")
        writer.save(12, {"part": [(ctypes.addressof(memory), BYTES)]}, check=lambda: "the memory was changed")
        writer.add("description", b"")
        try:
            writer.close()
            raise AssertionError("close says nothing of eleven saves that failed")
        except store.Failed as error:
            assert str(error).count("No such file") == 10 and str(error).count("the memory was changed") == 1, error
    assert len(said.getvalue().splitlines()) == 11 and said.getvalue().count("rank 0") == 11, said.getvalue()
    assert store.steps(folder) == [1] and store.newest(folder)[0] == 1


def full_disk():
    """Fills a file system of 8 MB, in which two checkpoints do not fit. Needs root."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, check=False).returncode:
            print("full disk: not tried, a small file system cannot be mounted here")
            return
        try:
            writer = store.Writer(folder, "full")
            failed = 0
            for step in range(1, 5):
                writer.save(step, {"part": [bytes([step]) * (6 << 20)]})
                writer.add("description", b"")
                try:
                    writer.wait()
                except store.Failed as error:
                    assert "No space left" in str(error), error
                    failed += 1
            found = store.newest(folder)
            assert failed == 3 and found and found[0] == 1, (failed, found)
            writer.close()
        finally:
            subprocess.run(["umount", folder], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--train", nargs=4)
    chosen = parser.parse_args()
    if chosen.train:
        folder, run, rank, begin = chosen.train
        train(folder, run, int(rank), int(begin))
        return
    print(f"seed {chosen.seed}")
    chance = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        least, passed = None, 0
        for point in range(chosen.points):
            least = kill_at(folder, chance, point, least)
            passed += 1
        assert least and least > chosen.points // 4, f"hardly a checkpoint was made: {least}"
        while len(store.steps(folder)) < 2:
            least = kill_at(folder, chance, 1 << 20, least)
        damage(folder, chance)
        undescribed(folder)
        repeated(folder)
    with tempfile.TemporaryDirectory() as folder:
        told(pathlib.Path(folder))
    full_disk()
    print(f"{passed} kills, the last checkpoint is step {least}; damaged files and a full disk")


main()
