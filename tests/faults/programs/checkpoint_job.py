"""A healthy DDP job that writes a checkpoint with ``torch.save`` to a slow disk, once in its middle.

Every rank saves its own shard (``--who all``), or rank 0 saves for all while the others go on to the next
step. ``--wait fsync`` syncs each piece, as for a busy disk; ``--wait quota`` only sleeps between pieces, as
for an object store that limits the rate. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from typing_extensions import Buffer

FEATURES = 256
PIECE = 1 << 16


class SlowFile(io.FileIO):
    """A file on a disk that takes so many seconds for the whole of a checkpoint of ``size_bytes``."""

    def __init__(self, path: Path, seconds: float, size_bytes: int, *, wait: str) -> None:
        super().__init__(path, "w")
        self.pause = seconds * PIECE / size_bytes
        self.wait = wait

    def write(self, data: Buffer, /) -> int:
        """Write piece by piece."""
        view = memoryview(data)
        for begin in range(0, len(view), PIECE):
            piece = view[begin : begin + PIECE]
            super().write(piece)
            if self.wait == "fsync":
                os.fsync(self.fileno())
            time.sleep(self.pause * len(piece) / PIECE)
        return len(view)


def save_checkpoint(path: Path, model: nn.Module, seconds: float, wait: str) -> None:
    """Save beside and rename."""
    new = path.with_suffix(".new")
    state = model.state_dict()
    size = sum(value.numel() * value.element_size() for value in state.values())
    with SlowFile(new, seconds, size, wait=wait) as file:
        torch.save(state, file)
    new.replace(path)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--step-time", type=float, default=0.05)
    parser.add_argument("--save-at", type=int, default=50)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--who", choices=["all", "0"], default="0")
    parser.add_argument("--wait", choices=["fsync", "quota"], default="fsync")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = [nn.Linear(FEATURES, FEATURES) for _ in range(16)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(FEATURES, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step in range(options.steps):
        loss = model(torch.rand(4, FEATURES)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if step == options.save_at and options.who in ("all", str(rank)):
            options.folder.mkdir(parents=True, exist_ok=True)
            save_checkpoint(options.folder / f"shard-{rank}.pt", model.module, options.seconds, options.wait)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
