"""A worker for launches of all kinds: writes its pid under the rank it knows itself to be, then waits.

As a script it is told its rank by its environment. ``python launched_worker.py --start METHOD [--env]``
starts two workers as functions with torch's ``start_processes``, one of the ways that a rank stands in no
variable at the start of its process; with ``--env`` they set ``RANK`` themselves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def announce(rank: int) -> None:
    """Write this process's pid into the folder that the test named."""
    folder = Path(os.environ["ANNOUNCE_TO"])
    (folder / f"{rank}.tmp").write_text(str(os.getpid()))
    (folder / f"{rank}.tmp").rename(folder / str(rank))


def wait_for_ever(*_arguments: object) -> None:
    """A worker that an elastic launch calls: it knows its rank by its environment."""
    announce(int(os.environ["RANK"]))
    time.sleep(1000)


def train(rank: int, world_size: int, *, in_environment: bool) -> None:
    """A worker of ``start_processes``: it knows its rank by its argument, and joins a group."""
    import torch.distributed as dist

    if in_environment:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['ANNOUNCE_TO']}/store", rank=rank, world_size=world_size
    )
    announce(rank)
    time.sleep(1000)


def start(method: str, *, in_environment: bool) -> None:
    """Two workers as functions."""
    from functools import partial

    from torch.multiprocessing.spawn import start_processes

    starter = cast("Callable[..., object]", start_processes)
    starter(partial(train, in_environment=in_environment), (2,), nprocs=2, start_method=method)


def launch(method: str) -> None:
    """An elastic launch of a function, as torch's own API has it."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="launched-function",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method=method,
        max_restarts=0,
    )
    elastic_launch(config, wait_for_ever)()


def main() -> None:
    """Start workers, or be one."""
    if "--start" in sys.argv:
        start(sys.argv[sys.argv.index("--start") + 1], in_environment="--env" in sys.argv)
    elif "--launch" in sys.argv:
        launch(sys.argv[sys.argv.index("--launch") + 1])
    else:
        announce(next(int(os.environ[name]) for name in VARIABLES if name in os.environ))
        time.sleep(1000)


if __name__ == "__main__":
    main()
