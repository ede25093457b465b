"""A job that goes on, slower from a step on (``--fault``): on one rank, on all, or by nothing in here.

``compute``: one rank has more to compute, from ``--then-at`` on another. ``loading``: the data set of one
rank is slow. ``storage``: all ranks read their records from a named pipe, which whoever fills it may fill
slowly. ``none``: every rank computes for ``--work`` seconds of CPU, and that is all. It knows nothing of
Rankscope.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 32
BATCH = 8
RECORD = 4096


def crunch(seconds: float) -> float:
    """Compute for so long, by the CPU's clock: a rank that gets no core takes longer."""
    until = time.thread_time() + seconds
    total = 0.0
    values = torch.rand(64, 64)
    while time.thread_time() < until:
        total += float((values @ values).sum())
    return total


def refine(features: torch.Tensor, seconds: float) -> torch.Tensor:
    """One more pass over the features, which takes its time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        features = (features @ torch.eye(FEATURES)).clamp(-1, 1)  # stuck here: compute
    return features


class Examples(Dataset[torch.Tensor]):
    """Examples; from some index on they take longer to get."""

    def __init__(self, slow_from: int, seconds: float) -> None:
        self.slow_from = slow_from
        self.seconds = seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.slow_from:
            time.sleep(self.seconds)  # stuck here: loading
        return torch.full((FEATURES,), (index % 7) / 7)


def next_records(source: IO[bytes]) -> torch.Tensor:
    """The next records, as they come."""
    record = source.read(RECORD)  # stuck here: storage
    return torch.frombuffer(bytearray(record), dtype=torch.uint8)[:FEATURES].float() / 255


def batches(options: argparse.Namespace, *, is_slow: bool) -> Iterator[torch.Tensor]:
    """Batches without end."""
    if options.source is not None:
        with (options.source / f"source-{dist.get_rank()}").open("rb", buffering=0) as source:
            while True:
                yield next_records(source).repeat(BATCH, 1)
    slow_from = options.at * BATCH if options.fault == "loading" and is_slow else 1_000_000
    yield from DataLoader(Examples(slow_from, options.extra / BATCH), batch_size=BATCH)


def average_gradients(model: nn.Module) -> None:
    """What DDP does, by hand."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["compute", "loading", "storage", "none"], required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--then-rank", type=int)
    parser.add_argument("--then-at", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-time", type=float, default=0.2)
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--extra", type=float, default=0.3)
    parser.add_argument("--source", type=Path)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_slow = rank == options.rank
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    source = batches(options, is_slow=is_slow)
    for step in range(options.steps):
        features = next(source)
        slow_rank = options.rank if step < options.then_at else options.then_rank
        if options.fault == "compute" and rank == slow_rank and step >= options.at:
            features = refine(features, options.extra)
        crunch(options.work)
        time.sleep(options.step_time)  # what an accelerator would do
        loss = model(features).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        average_gradients(model)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
