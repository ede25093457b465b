"""One rank of a small gloo job on several nodes: it sums one vector up, again and again, until it is told.

Told by files in the folder that it is given: ``finish`` ends the job; ``hang-<rank>`` and ``fail-<rank>`` are
taken away by the rank they are for, which then hangs or exits with 5; while ``lag-<rank>`` is there, that
rank computes in each step. It notes down whom it met when a round has formed, and rank 0 the step. It knows
nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

GROUP_TIMEOUT = timedelta(seconds=300)
LAG = 0.3
"""Seconds that a step of a rank that lags takes longer."""
LIFE_SECONDS = 1200
"""A rank whose test was killed ends by itself then."""


def _note(path: Path, value: object) -> None:
    """Whole or not at all, whoever reads or kills."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def _asked(request: Path) -> bool:
    """Whether somebody asks for it; it is done once."""
    if not request.exists():
        return False
    request.unlink()
    return True


def wait_for_ever() -> None:
    """Hang."""
    threading.Event().wait()


def compute(seconds: float) -> int:
    """Be busy."""
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        count += 1
    return count


def train(folder: Path, numbers: int, step_time: float) -> None:
    """Until all ranks have seen that they shall finish."""
    rank, world = dist.get_rank(), dist.get_world_size()
    store = f"{os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']}"  # another one in each round
    met = {"host": socket.gethostname(), "rank": rank, "world": world, "store": store}
    step = 0
    while True:
        if _asked(folder / f"hang-{rank}"):
            wait_for_ever()
        if _asked(folder / f"fail-{rank}"):
            os._exit(5)
        if (folder / f"lag-{rank}").exists():
            compute(LAG)
        told = torch.full((numbers,), float((folder / "finish").exists()))
        dist.all_reduce(told)
        step += 1
        if step == 1:
            _note(folder / f"met-{os.getpid()}.json", met)
        if rank == 0:
            _note(folder / "step.json", {"store": store, "step": step})
        if int(told[0]) == world:
            return
        time.sleep(step_time)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--numbers", type=int, default=1)
    parser.add_argument("--step-time", type=float, default=0.05)
    options = parser.parse_args()
    signal.alarm(LIFE_SECONDS)
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    train(options.folder, options.numbers, options.step_time)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
