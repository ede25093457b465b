"""A training job of MPI ranks: each takes its place from Open MPI's variables, as scripts under mpirun do.

``mpi_job.py FOLDER STEPS``: rank 1 reads a shard for ever in the first life, once there is ``FOLDER/go-0``,
and raises in the second one, once there is ``FOLDER/go-1``; each rank of the third leaves
``FOLDER/done-<rank>``.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FAULTY = 1
FAULT_STEP = 10
STEP_TIME = 0.05


def load_batch(shard: Path) -> bytes:
    return shard.read_bytes()


def check() -> None:
    raise ValueError("bad sample")


def main(folder: Path, steps: int) -> None:
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world_size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    life = os.environ["TORCHELASTIC_RESTART_COUNT"]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    weights = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    for step in range(steps) if life == "2" else itertools.count():
        if rank == FAULTY and step >= FAULT_STEP and (folder / f"go-{life}").exists():
            if life == "0":
                load_batch(folder / "shard")
            check()
        weights.grad = torch.ones(4)
        dist.all_reduce(weights.grad)
        optimizer.step()
        time.sleep(STEP_TIME)
    (folder / f"done-{rank}").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
