"""A DDP job over a real ``DataLoader``, one sample of which never arrives on one rank (``--fault``).

``asleep``: whoever holds the sample does not answer. ``killed``: the loader's worker is killed while it
unpacks it, as the OOM killer does. ``forked``: the worker waits for a lock that a thread of the rank held
while the worker was forked. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FEATURES = 16
BATCH = 4
UNPACK = 2.0


class Index:
    """Where the samples lie; a thread renews it now and then."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.offsets: dict[int, int] = {}

    def renew(self, begun: threading.Event, may_end: threading.Event) -> None:
        """Take in the newest offsets."""
        with self.lock:
            begun.set()
            may_end.wait()

    def offset(self, index: int) -> int:
        """Where a sample begins."""
        with self.lock:  # stuck here: forked
            return self.offsets.get(index, 0)


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples, of which one is hard to get."""

    def __init__(self, length: int, hard: int, fault: str) -> None:
        self.length = length
        self.hard = hard
        self.fault = fault
        self.index = Index()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == self.hard:
            self.obtain(index)
        features = torch.full((FEATURES,), float(index % 5))
        return features, features.sum().unsqueeze(0)

    def obtain(self, index: int) -> None:
        """Get the hard one."""
        if self.fault == "asleep":
            ask()
        elif self.fault == "killed":
            unpack()
        elif self.fault == "forked":
            self.index.offset(index)


def ask() -> None:
    """Wait for an answer."""
    time.sleep(1_000_000)  # stuck here: asleep


def unpack() -> None:
    """Need more and more memory, and be killed for it."""
    time.sleep(UNPACK)
    os.kill(os.getpid(), signal.SIGKILL)


def train(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], step_time: float) -> None:
    """All steps."""
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step, (features, target) in enumerate(batches):  # stuck here: killed
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(step_time)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main() -> None:
    """Train until the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["asleep", "killed", "forked"], required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    concerned = dist.get_rank() == options.rank
    data = Samples(2 * options.at * BATCH, options.at * BATCH if concerned else -1, options.fault)
    begun, may_end = threading.Event(), threading.Event()
    if concerned and options.fault == "forked":
        threading.Thread(target=data.index.renew, args=(begun, may_end), daemon=True).start()
        begun.wait()
    context = "fork" if options.workers else None
    loader = DataLoader(data, batch_size=BATCH, num_workers=options.workers, multiprocessing_context=context)
    batches = iter(loader)
    may_end.set()
    train(batches, options.step_time)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
