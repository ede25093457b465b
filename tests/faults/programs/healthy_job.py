"""A healthy DDP job that looks hung for a while (``--spell``), then trains on and finishes.

``evaluation``: rank 0 computes alone while the others wait in a barrier. ``checkpoint``: rank 0 writes to a
slow disk while the others wait in the next step's gradients. ``warm_up``: the first step of every rank takes
long, as compilation does. ``epoch_end``: all ranks wait quietly for the next epoch's data. ``early_end``: all
but rank 0 have finished, rank 0 waits quietly for an upload. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 64
BATCH = 8
BLOCK = 1 << 20
SPELLS = ["none", "evaluation", "checkpoint", "warm_up", "epoch_end", "early_end"]
SYNC_PAUSE = 0.2
"""Seconds between two synced blocks: 5 MB/s, a slow share."""


def evaluate(model: nn.Module, seconds: float) -> float:
    """Go through a test set and gather its figures in Python."""
    until = time.monotonic() + seconds
    losses: list[float] = []
    with torch.no_grad():
        while time.monotonic() < until:
            features = torch.rand(BATCH, FEATURES)
            losses += [float(loss) for loss in (model(features) - features.sum(1, keepdim=True)) ** 2]
    return sum(losses) / len(losses)


def save_slowly(path: Path, seconds: float) -> None:
    """Write a checkpoint block by block, each synced; one block long, so that it fills no disk."""
    until = time.monotonic() + seconds
    block = os.urandom(BLOCK)
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.seek(0)
            file.write(block)
            os.fsync(file.fileno())
            time.sleep(SYNC_PAUSE)


def specialise(seconds: float) -> int:
    """Work in Python for so long, as a compiler in the first step."""
    until = time.monotonic() + seconds
    done = 0
    while time.monotonic() < until:
        done += sum(range(1000))
    return done


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--spell", choices=SPELLS, default="none")
    parser.add_argument("--spell-step", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        if step == 0 and options.spell == "warm_up":
            specialise(options.seconds)
        loss = (model(torch.rand(BATCH, FEATURES)) ** 2).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if step == options.spell_step and options.spell == "evaluation":
            if rank == 0:
                evaluate(model.module, options.seconds)
            dist.barrier()
        if step == options.spell_step and options.spell == "checkpoint" and rank == 0:
            save_slowly(options.checkpoint, options.seconds)
        if step == options.spell_step and options.spell == "epoch_end":
            time.sleep(options.seconds)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()
    if options.spell == "early_end" and rank == 0:
        time.sleep(options.seconds)


if __name__ == "__main__":
    main()
