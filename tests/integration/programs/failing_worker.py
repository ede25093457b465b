"""One rank of a gloo job that fails as it is told: ``failing_worker.py FAULT FOLDER``, rank 1 has the fault.

``kill``: SIGKILL. ``raise``: an exception, after which it leaves its group and takes its time to end, as
with exit handlers that upload things: it ends when the folder has a file ``release``.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = 60.0


def wait_for_release(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (folder / "release").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def fail(fault: str, folder: Path) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    atexit.register(wait_for_release, folder)
    raise ValueError("bad sample 17")


@record
def main() -> None:
    fault, folder, rank = sys.argv[1], Path(sys.argv[2]), int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=int(os.environ["WORLD_SIZE"])
    )
    try:
        dist.barrier()
        if rank == 1:
            fail(fault, folder)
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
