"""A healthy DDP job over a real ``DataLoader`` with worker processes, which are slow once an epoch.

The workers start anew each epoch and prepare their share first: ``--prepare work`` builds an index in Python,
``--prepare files`` writes a cache to disk, ``--prepare sleep`` waits for a server; on all ranks, or on
``--rank`` alone. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FEATURES = 16
BATCH = 4
BLOCK = 1 << 18


def build_index(seconds: float) -> int:
    """Count words, say."""
    until = time.monotonic() + seconds
    words: dict[int, int] = {}
    while time.monotonic() < until:
        for word in range(1000):
            words[word] = words.get(word, 0) + 1
    return len(words)


def fill_cache(seconds: float) -> None:
    """Unpack a shard to the local disk, slowly."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as cache:
        while time.monotonic() < until:
            cache.seek(0)
            cache.write(os.urandom(BLOCK))
            cache.flush()
            os.fsync(cache.fileno())
            time.sleep(0.3)


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples whose store must be opened in every worker."""

    def __init__(self, length: int, prepare: str, seconds: float) -> None:
        self.length = length
        self.prepare = prepare
        self.seconds = seconds
        self.opened = False

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.opened:
            self.open_store()
        features = torch.full((FEATURES,), float(index % 5))
        return features, features.sum().unsqueeze(0)

    def open_store(self) -> None:
        """What takes long in a new worker."""
        self.opened = True
        if self.prepare == "work":
            build_index(self.seconds)
        elif self.prepare == "files":
            fill_cache(self.seconds)
        elif self.prepare == "sleep":
            time.sleep(self.seconds)


def main() -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prepare", choices=["work", "files", "sleep"], required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rank", type=int, default=-1, help="where the workers are slow; -1: everywhere")
    parser.add_argument("--slow-from", type=int, default=0, help="first epoch with slow workers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40, help="of an epoch")
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    slow = options.rank in (-1, rank)
    data = Samples(options.steps * BATCH * dist.get_world_size(), options.prepare, 0.0)
    sampler: DistributedSampler[tuple[torch.Tensor, torch.Tensor]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=options.workers)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        data.seconds = options.seconds if slow and epoch >= options.slow_from else 0.0
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            time.sleep(options.step_time)
        if rank == 0:
            print(f"epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
