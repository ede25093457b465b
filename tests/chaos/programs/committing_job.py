"""A small training run that commits every step, and goes on after the last one when it is started again.

Rank 0 appends the number of each step to a file once all ranks have made it. Before one step (``--gate``) it
makes steps that nobody counts until a file is there, so that whatever is to happen to the job can happen
before it is done. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 8


def committed(path: Path) -> int:
    """How many steps are done."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def commit(path: Path, step: int) -> None:
    """Write a step down, whole or not at all."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{step}\n".encode())
    os.close(file)


class Training:
    """A model, and steps that all ranks make together."""

    def __init__(self, step_time: float) -> None:
        self.model = nn.Linear(FEATURES, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.step_time = step_time

    def make_step(self) -> float:
        """One step; its loss."""
        loss = self.model(torch.rand(FEATURES, FEATURES)).square().mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()
        time.sleep(self.step_time)
        return float(loss)


def told_by_rank_0(number: int) -> int:
    """The number that rank 0 has."""
    word = torch.tensor(number)
    dist.broadcast(word, 0)
    return int(word)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--done", type=Path, required=True)
    parser.add_argument("--go", type=Path, required=True)
    parser.add_argument("--gate", type=int, default=60)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--step-time", type=float, default=0.05)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    training = Training(options.step_time)
    for step in range(told_by_rank_0(committed(options.done)), options.steps):
        while step == options.gate and not told_by_rank_0(options.go.exists()):
            training.make_step()
        loss = training.make_step()
        if rank == 0:
            commit(options.done, step)
            print(f"step {step} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
