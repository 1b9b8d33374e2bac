"""Trains ResNet-20 or a small transformer with DDP over Outboard, and saves beside the training.

    mpirun -n 2 python train.py                          ResNet-20, 40 steps
    mpirun -n 2 python train.py --model transformer      1.2 million parameters, on the sources of Python's library
    torchrun --nproc-per-node 2 train.py --saves runs/a  again with the same folder: goes on from the newest checkpoint

Pictures come from --data FOLDER with CIFAR-10's `cifar-10-batches-py`, else from Debian's package dataset-fashion-mnist, brought into the shape
of CIFAR-10 (grey to three channels, 28 to 32 points), else they are noise. The last line has what the run did, as JSON."""
import argparse
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
from outboard_torch.checkpoint import Checkpoints
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Block(nn.Module):
    """Two convolutions and what goes around them (He et al. 2015, section 4.2: the shortcut pads with zeros)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.stride, self.pad = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return functional.relu(y + functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.pad, self.pad)))


def resnet20():
    blocks = [Block(16 * (1 << max(stage - (not i), 0)), 16 << stage, 2 if stage and not i else 1) for stage in range(3) for i in range(3)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 10))


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
        data = torch.cat([torch.from_numpy(batch[b"data"]).view(-1, 3, 32, 32) for batch in batches])
        return data, torch.tensor([label for batch in batches for label in batch[b"labels"]]), "CIFAR-10"
    files = [next(iter(FASHION.rglob(f"train-{kind}*.gz")), None) for kind in ("images", "labels")]
    if all(files):
        raw = [bytearray(gzip.decompress(file.read_bytes())) for file in files]
        data = torch.frombuffer(raw[0], dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
        labels = torch.frombuffer(raw[1], dtype=torch.uint8, offset=8).long()
        return functional.pad(data, (2, 2, 2, 2)).expand(-1, 3, -1, -1), labels, "Fashion-MNIST in CIFAR-10's shape"
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8, generator=generator),
            torch.randint(0, 10, (5000,), generator=generator), "noise")


def task(name, folder):
    """The model, a function from generator to one rank's inputs and what it should say, and where the data is from."""
    if name == "resnet20":
        data, labels, source = pictures(folder)

        def batch(generator, count):
            chosen = torch.randint(0, len(data), (count,), generator=generator)
            return (data[chosen].float() - 72) / 90, labels[chosen]

        return resnet20(), batch, source
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()

    def batch(generator, count):
        at = torch.randint(0, len(text) - 129, (count // 4,), generator=generator)
        windows = torch.stack([text[i:i + 129] for i in at.tolist()])
        return windows[:, :-1], windows[:, 1:].flatten()

    return Transformer(), batch, "the sources of Python's library"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["resnet20", "transformer"], default="resnet20")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32, help="pictures, or four times the texts, of a rank")
    parser.add_argument("--backend", default="outboard", help="gloo, to compare")
    parser.add_argument("--data", help="the folder of cifar-10-batches-py")
    parser.add_argument("--saves", help="a folder for checkpoints")
    parser.add_argument("--every", type=int, default=10, help="steps from one checkpoint to the next")
    chosen = parser.parse_args()
    dist.init_process_group(chosen.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model, batch, source = task(chosen.model, chosen.data)
    net = DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(1000 + rank)
    begin, saves = 0, None

    def state():
        weights, momenta = get_state_dict(net, optimizer)
        return {"model": weights, "optimizer": momenta, f"data-{rank}": generator.get_state()}

    if chosen.saves:
        saves = Checkpoints(chosen.saves)
        saves.attach(optimizer)
        loaded = state()
        begin = saves.load(loaded) or 0
        if begin:
            set_state_dict(net, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
            generator.set_state(loaded[f"data-{rank}"])
    if rank == 0:
        count = sum(parameter.numel() for parameter in net.parameters())
        print(f"{chosen.model}: {count} parameters, {size} ranks, {source}" + (f", goes on from step {begin}" if begin else ""), flush=True)
    began, waited, loss = time.perf_counter(), 0.0, torch.tensor(0.0)
    for step in range(begin + 1, chosen.steps + 1):
        inputs, wanted = batch(generator, chosen.batch)
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(inputs), wanted)
        loss.backward()
        optimizer.step()
        if saves and step % chosen.every == 0:
            before = time.perf_counter()
            saves.save(state(), step)
            waited += time.perf_counter() - before
        if rank == 0 and sys.stderr.isatty():
            print(f"\r{'#' * (30 * step // chosen.steps):30} {step}/{chosen.steps}  loss {loss.item():.3f} ", end="", file=sys.stderr)
    took = time.perf_counter() - began
    if saves:
        saves.wait()
        saves.close()
    steps = chosen.steps - begin
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.SUM)
    if rank == 0 and steps > 0:
        print("\n" + json.dumps({"backend": chosen.backend, "model": chosen.model, "ranks": size, "steps": steps,
                                 "loss": round(mean.item() / size, 4), "ms_per_step": round(took / steps * 1000, 1),
                                 "pictures_per_s": round(steps * chosen.batch * size / took, 1),
                                 "saving_ms_per_checkpoint": round(waited * 1000 / max(steps // chosen.every, 1), 1) if saves else None,
                                 "stalled_ms": round(saves.stalled * 1000, 1) if saves else None}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
