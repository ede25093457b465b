"""A training job in which one rank reads from a FIFO for ever and the others wait for it in all_reduce.

``hung_job.py FOLDER RANK``: the rank touches FOLDER/stuck before it reads, others FOLDER/waiting-<rank>. On
SIGUSR1 a rank writes its stacks into FOLDER/rank<rank>.faulthandler.txt.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def load_batch(pipe: Path) -> bytes:
    return pipe.read_bytes()


def train_step(gradient: torch.Tensor) -> None:
    dist.all_reduce(gradient)


def main(folder: Path, stuck: int) -> None:
    rank = int(os.environ["RANK"])
    stacks = (folder / f"rank{rank}.faulthandler.txt").open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks)
    dist.init_process_group("gloo")
    gradient = torch.ones(8)
    for _ in range(3):
        train_step(gradient)
    if rank == stuck:
        (folder / "stuck").touch()
        load_batch(folder / "shard")
    (folder / f"waiting-{rank}").touch()
    train_step(gradient)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
