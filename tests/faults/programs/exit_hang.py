"""A job that trains to its end, and one rank of which does not exit (``--keeps``).

``thread``: a thread that is no daemon waits for ever. ``child``: a child process is waited for that never
ends. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def upload_metrics(finished: threading.Event) -> None:
    """Wait for a word that nobody gives."""
    finished.wait()


def stop_tracker(tracker: subprocess.Popen[bytes]) -> None:
    """Wait until the tracker has gone, which it never does: it was not told."""
    tracker.wait()


def main() -> None:
    """Train, and do not exit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keeps", choices=["thread", "child"], required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(options.steps):
        loss = model(torch.rand(8, 12)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
    dist.destroy_process_group()
    if rank == options.rank and options.keeps == "thread":
        threading.Thread(target=upload_metrics, args=(threading.Event(),), name="uploader").start()
    elif rank == options.rank:
        stop_tracker(subprocess.Popen(["sleep", "10000"]))


if __name__ == "__main__":
    main()
