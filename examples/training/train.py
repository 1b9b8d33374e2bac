# SPDX-License-Identifier: BSD-3-Clause
"""Trains ResNet-20, ResNet-34 or a small transformer with DDP over Outboard; loads, saves and validates beside the training.

    mpirun -n 2 python train.py                          ResNet-20, 40 steps
    mpirun -n 2 python train.py --model transformer      1.2 million parameters, on the sources of Python's library
    torchrun --nproc-per-node 2 train.py --saves runs/a  again with the same folder: goes on from the newest checkpoint
    mpirun -n 2 python train.py --loaders 1 --saves runs/b --validate beside

Pictures come from --data FOLDER with CIFAR-10's `cifar-10-batches-py`, else from Debian's package dataset-fashion-mnist, brought into the shape
of CIFAR-10 (grey to three channels, 28 to 32 points), else they are noise. 1000 of them are held out. The last line has what the run did, as JSON."""
import argparse
import contextlib
import gzip
import json
import pathlib
import pickle
import sys
import sysconfig
import time

import outboard_torch  # noqa: F401
import torch
import torch.distributed as dist
from outboard_training.checkpoint import Checkpoints
from outboard_training.data import DataLoader
from validation import Validation
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils import data

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Block(nn.Module):
    """Two convolutions and the shortcut around them. Where the shape changes, the shortcut pads with zeros (He et al. 2015,
    section 4.2) or is a convolution (section 4.1)."""

    def __init__(self, inputs, outputs, stride, is_padded):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.stride, self.pad, self.around = stride, (outputs - inputs) // 2, None
        if stride > 1 and not is_padded:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        if self.around:
            return functional.relu(y + self.around(x))
        return functional.relu(y + functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.pad, self.pad)))


def resnet(stem, width, depths, is_padded):
    """Makes a ResNet. `depths` are the blocks of each stage; a stage is twice as wide as the one before."""
    blocks = [Block(width << max(stage - (not i), 0), width << stage, 2 if stage and not i else 1, is_padded)
              for stage, depth in enumerate(depths) for i in range(depth)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << len(depths) - 1, 10))


def resnet20():
    return resnet([nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16, [3, 3, 3], is_padded=True)


def resnet34():
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return resnet(stem, 64, [3, 4, 6, 3], is_padded=False)


class Transformer(nn.Module):
    """Predicts the next byte of a text."""

    def __init__(self, width=160, layers=4, length=128):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, x):
        return self.out(self.layers(self.bytes(x) + self.places, mask=self.mask, is_causal=True)).flatten(0, 1)


def pictures(folder):
    """Pictures, labels, and where they come from."""
    if folder:
        batches = [pickle.loads((pathlib.Path(folder) / "cifar-10-batches-py" / f"data_batch_{i}").read_bytes(), encoding="bytes")
                   for i in range(1, 6)]
        pixels = torch.cat([torch.from_numpy(batch[b"data"]).view(-1, 3, 32, 32) for batch in batches])
        return pixels, torch.tensor([label for batch in batches for label in batch[b"labels"]]), "CIFAR-10"
    files = [next(iter(FASHION.rglob(f"train-{kind}*.gz")), None) for kind in ("images", "labels")]
    if all(files):
        raw = [bytearray(gzip.decompress(file.read_bytes())) for file in files]
        pixels = torch.frombuffer(raw[0], dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
        labels = torch.frombuffer(raw[1], dtype=torch.uint8, offset=8).long()
        return functional.pad(pixels, (2, 2, 2, 2)).expand(-1, 3, -1, -1), labels, "Fashion-MNIST in CIFAR-10's shape"
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8, generator=generator),
            torch.randint(0, 10, (5000,), generator=generator), "noise")


class Pictures(data.Dataset):
    """Pictures, each addressed by a number and a seed. The seed moves and mirrors the picture (He et al. 2015, section 4.2); None
    leaves it as it is. So a sample does not depend on the process that makes it."""

    def __init__(self, pictures, labels):
        self.pictures, self.labels = pictures, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, which):
        index, seed = which
        down, right, mirrors = (4, 4, 0) if seed is None else (seed % 9, seed // 9 % 9, seed // 81 % 2)
        picture = functional.pad(self.pictures[index], (4, 4, 4, 4))[:, down:down + 32, right:right + 32]
        return ((picture.flip(-1) if mirrors else picture).float() - 72) / 90, self.labels[index]


class Windows(data.Dataset):
    """Pieces of a text, each with the byte that follows."""

    def __init__(self, text, length=128):
        self.text, self.length = text, length

    def __len__(self):
        return len(self.text) - self.length

    def __getitem__(self, which):
        window = self.text[which[0]:which[0] + self.length + 1]
        return window[:-1], window[1:]


class Draws:
    """The batches of a rank after step `begin`: for each sample its number and a seed. The draws of a step depend on no earlier
    step, so a run that continues draws what it would have drawn."""

    def __init__(self, length, batch, rank, begin, end):
        self.length, self.batch, self.rank, self.steps = length, batch, rank, range(begin + 1, end + 1)

    def __len__(self):
        return len(self.steps)

    def __iter__(self):
        for step in self.steps:
            generator = torch.Generator().manual_seed(step * 1_000_003 + self.rank)
            chosen, seeds = (torch.randint(below, (self.batch,), generator=generator).tolist() for below in (self.length, 1 << 30))
            yield list(zip(chosen, seeds, strict=True))


def task(name, folder):
    """The model, the data to learn from and those held out, the samples of a batch of 32, and where the data are from."""
    if name != "transformer":
        pixels, labels, source = pictures(folder)
        return MODELS[name](), Pictures(pixels[:-1000], labels[:-1000]), Pictures(pixels[-1000:], labels[-1000:]), 32, source
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()
    return Transformer(), Windows(text[:-50_000]), Windows(text[-50_000:]), 8, "the sources of Python's library"


def evaluate(net, held_out):
    """The loss and the share of right answers on up to 1000 samples that were held out."""
    net.eval()
    loss, right, count = 0.0, 0, 0
    every = max(len(held_out) // 1000, 1)
    batches = [[(index, None) for index in range(at, min(at + 50 * every, len(held_out)), every)] for at in range(0, len(held_out), 50 * every)]
    with torch.no_grad():
        for inputs, wanted in data.DataLoader(held_out, batch_sampler=batches):
            said, wanted = net(inputs), wanted.flatten()
            loss += functional.cross_entropy(said, wanted, reduction="sum").item()
            right, count = right + (said.argmax(1) == wanted).sum().item(), count + len(wanted)
    net.train()
    return {"loss": round(loss / count, 4), "accuracy": round(right / count, 4)}


def validator(name, folder):
    """The function for `Validation`, which runs in a process of its own."""
    net, _, held_out, _, _ = task(name, folder)
    state = {"model": net.state_dict()}

    def check(step):
        net.load_state_dict(state["model"])
        return evaluate(net, held_out)

    return state, check


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*MODELS], default="resnet20")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, help="samples of a rank in a step (32 pictures, 8 texts)")
    parser.add_argument("--backend", default="outboard", help="gloo, to compare")
    parser.add_argument("--data", help="the folder of cifar-10-batches-py")
    parser.add_argument("--loaders", type=int, default=0, help="processes of each rank that load beside the training")
    parser.add_argument("--loader", choices=["ring", "torch"], default="ring", help="whose DataLoader: ours, or torch's, to compare")
    parser.add_argument("--saves", help="a folder for checkpoints")
    parser.add_argument("--every", type=int, default=10, help="steps from one checkpoint to the next")
    parser.add_argument("--validate", choices=["beside", "inline"], help="after each checkpoint: by another process, or by rank 0 while all wait")
    parser.add_argument("--cores", type=lambda text: {int(core) for core in text.split(",")}, help="where the other processes run, as 2,3")
    chosen = parser.parse_args()
    if chosen.validate and not chosen.saves:
        parser.error("--validate needs --saves")
    return chosen


class Clock:
    """Counts seconds by what they were spent on."""

    def __init__(self):
        self.spent = dict.fromkeys(("data", "saving", "validation"), 0.0)

    @contextlib.contextmanager
    def __call__(self, what):
        began = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - began


class Training:
    def __init__(self, chosen):
        self.chosen, self.rank = chosen, dist.get_rank()
        torch.manual_seed(1)
        model, self.learned, self.held_out, batch, self.source = task(chosen.model, chosen.data)
        self.batch = chosen.batch or batch
        # With the usual 25 MB all gradients of the small models would go into the first bucket.
        self.net = DistributedDataParallel(model, bucket_cap_mb=25 if chosen.model == "resnet34" else 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.clock, self.validated, self.begin, self.saves, self.validation = Clock(), [], 0, None, None
        if not chosen.saves:
            return
        self.saves = Checkpoints(chosen.saves, cores=chosen.cores)
        self.saves.attach(self.optimizer)
        loaded = self.state()
        self.begin = self.saves.load(loaded) or 0
        if self.begin:
            set_state_dict(self.net, self.optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
        if chosen.validate == "beside" and self.rank == 0:
            self.validation = Validation(self.saves.folder, validator, chosen.model, chosen.data, cores=chosen.cores)

    def state(self):
        weights, momenta = get_state_dict(self.net, self.optimizer)
        return {"model": weights, "optimizer": momenta}

    def batches(self):
        chosen = self.chosen
        draws = Draws(len(self.learned), self.batch, self.rank, self.begin, chosen.steps)
        kind, more = (DataLoader, {"cores": chosen.cores}) if chosen.loader == "ring" else (data.DataLoader, {})
        batches = iter(kind(self.learned, batch_sampler=draws, num_workers=chosen.loaders, **more))
        for _ in range(len(draws)):
            with self.clock("data"):
                batch = next(batches)
            yield batch

    def after(self, step):
        """The work that follows each `--every` steps."""
        with self.clock("saving"):
            self.saves.save(self.state(), step)
        if self.chosen.validate == "inline":
            with self.clock("validation"):
                if self.rank == 0:
                    self.validated.append((step, evaluate(self.net.module, self.held_out)))
                dist.barrier()
        elif self.validation:
            self.validated += self.validation.results()

    def run(self):
        """Trains. Returns the last loss and the seconds."""
        began, loss = time.perf_counter(), torch.tensor(0.0)
        for step, (inputs, wanted) in enumerate(self.batches(), self.begin + 1):
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.net(inputs), wanted.flatten())
            loss.backward()
            self.optimizer.step()
            if self.saves and step % self.chosen.every == 0:
                self.after(step)
            if self.rank == 0 and sys.stderr.isatty():
                part = 30 * step // self.chosen.steps
                print(f"\r{'#' * part:30} {step}/{self.chosen.steps}  loss {loss.item():.3f} ", end="", file=sys.stderr)
        return loss.detach().clone(), time.perf_counter() - began

    def close(self):
        if self.saves:
            self.saves.wait()
            self.saves.close()
        if self.validation:
            self.validated += self.validation.close()


def main():
    chosen = options()
    dist.init_process_group(chosen.backend)
    training, size = Training(chosen), dist.get_world_size()
    steps = chosen.steps - training.begin
    if training.rank == 0:
        count = sum(parameter.numel() for parameter in training.net.parameters())
        print(f"{chosen.model}: {count} parameters, {size} ranks, {training.source}" +
              (f", goes on from step {training.begin}" if training.begin else ""), flush=True)
    loss, took = training.run()
    training.close()
    dist.all_reduce(loss, dist.ReduceOp.SUM)
    if training.rank == 0 and steps > 0:
        spent, saves = training.clock.spent, training.saves
        for step, result in training.validated:
            print(f"validated at step {step}: {result}")
        print(json.dumps({"backend": chosen.backend, "model": chosen.model, "ranks": size, "steps": steps, "loss": round(loss.item() / size, 4),
                          "ms_per_step": round(took / steps * 1000, 1), "samples_per_s": round(steps * training.batch * size / took, 1),
                          "data_ms_per_step": round(spent["data"] / steps * 1000, 2),
                          "saving_ms_per_checkpoint": round(spent["saving"] * 1000 / max(steps // chosen.every, 1), 1) if saves else None,
                          "stalled_ms": round(saves.stalled * 1000, 1) if saves else None,
                          "validating_s": round(spent["validation"], 3) if chosen.validate else None}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


MODELS = {"resnet20": resnet20, "resnet34": resnet34, "transformer": Transformer}

if __name__ == "__main__":
    main()
