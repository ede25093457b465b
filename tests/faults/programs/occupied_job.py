"""A healthy job one rank of which is busy with itself for a while in the middle; the others wait for it.

``collect``: garbage collections of a large heap. ``python``: work in Python whose results are kept.
``search``: work in Python with one result. ``native_gil``: one call into C that keeps the GIL.
``native_free``: one that gives it back. ``convert``: a command whose start the kernel holds up. ``read``: a
pipe that somebody outside feeds (``--source``). It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 40
HEAP = 5_000_000
PROBE = 20_000_000


def collect_garbage(seconds: float) -> int:
    """Collections of a large heap, one after the other, as after a phase that made much of it."""
    until = time.monotonic() + seconds
    heap: list[list[int]] = [[number] for number in range(HEAP)]
    while time.monotonic() < until:
        gc.collect()
    return len(heap)


def score_documents(seconds: float) -> int:
    """Honest Python work: it keeps its results, so memory grows."""
    until = time.monotonic() + seconds
    scores: list[tuple[int, float]] = []
    while time.monotonic() < until:
        total = sum(word * word for word in range(500))
        scores.append((total, total / (1 + len(scores))))
    return len(scores)


def search_seed(seconds: float) -> int:
    """Honest Python work in place: an endless loop looks the same while it lasts."""
    until = time.monotonic() + seconds
    seed = 1
    while time.monotonic() < until:
        seed = (seed * 48271 + 11) % 2147483647
    return seed


def sum_range(seconds: float) -> int:
    """One C call that never gives the GIL back."""
    began = time.monotonic()
    total = sum(range(PROBE))
    rate = PROBE / (time.monotonic() - began)
    return total + sum(range(int(seconds * rate)))


def derive_key(seconds: float) -> bytes:
    """One C call that runs without the GIL."""
    began = time.monotonic()
    rounds = 200_000
    hashlib.pbkdf2_hmac("sha256", b"probe", b"salt", rounds)
    rate = rounds / (time.monotonic() - began)
    return hashlib.pbkdf2_hmac("sha256", b"key", b"salt", int(seconds * rate))


def convert(command: Path) -> None:
    """Run a converter; its start may take as long as the file system likes."""
    subprocess.run([str(command)], check=True)


def read_source(source: Path) -> bytes:
    """Read a batch from a pipe, however long that takes."""
    with source.open("rb") as file:
        return file.read()


def occupy(options: argparse.Namespace) -> None:
    """What the busy rank does."""
    name, seconds = str(options.spell), float(options.seconds)
    if name == "collect":
        collect_garbage(seconds)
    elif name == "python":
        score_documents(seconds)
    elif name == "search":
        search_seed(seconds)
    elif name == "native_gil":
        sum_range(seconds)
    elif name == "native_free":
        derive_key(seconds)
    elif name == "convert":
        convert(options.source)
    elif name == "read":
        read_source(options.source)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    spells = ["collect", "python", "search", "native_gil", "native_free", "convert", "read"]
    parser.add_argument("--spell", choices=spells, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--source", type=Path, default=Path())
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        if step == options.at and rank == options.rank:
            print(f"rank {rank} is busy", flush=True)
            occupy(options)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
