"""A DDP training run over gloo that writes down what each of its steps took. It knows of no launcher.

A step is a batch from a data loader, forward and backward with DDP's collectives, and an optimizer's step:
everything that a probe might hook. Nothing sleeps, so a cost cannot hide in a pause. ``<folder>/<rank>.json``
gets the steps' seconds and the monotonic time (of the machine) at which the first one was done.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH: Final = 512
BATCH: Final = 192
"""About 20 ms a step on one core: a cost by the step shows five times better than in one of 100 ms."""
LAYERS: Final = 3


class Batches(Dataset[torch.Tensor]):
    """The same batch over and over, so that every step does the same work."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.batch = torch.linspace(-1, 1, BATCH * WIDTH).reshape(BATCH, WIDTH)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        return self.batch


def main(folder: Path, steps: int) -> None:
    """Train for ``steps`` steps."""
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    ends: list[float] = []
    for batch in DataLoader(Batches(steps), batch_size=None):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        ends.append(time.monotonic())
    seconds = [end - begin for begin, end in itertools.pairwise(ends)]
    folder.mkdir(parents=True, exist_ok=True)
    answer = {"first_step_at": ends[0], "seconds": seconds}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
