"""A job one rank of which ends before its time, or does not end when it should (``--fault``).

``left``: it leaves with exit code 0. ``left_quietly``: the same in a job whose ranks meet in the store and
not in collectives. ``raises``: an exception. ``raises_on``: an exception, and a thread keeps the process.
``killed``: SIGKILL. ``segfault``. ``thread``: its script returns early, and a thread keeps the process.
``lingers``: all ranks have finished, and a thread keeps this one's process. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 12
FAULTS = ["killed", "left", "left_quietly", "lingers", "raises", "raises_on", "segfault", "thread"]


class Mirror:
    """A thread that copies what is new until it is told to stop."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.copy_until_stopped, name="mirror")
        self.thread.start()

    def copy_until_stopped(self) -> None:
        """Copy."""
        self.stop.wait()  # stuck here: thread


def check(loss: float) -> None:
    """Refuse what cannot be."""
    if loss >= 0:
        raise ValueError(f"a loss of {loss}")  # stuck here: raises


def read_header(address: int) -> bytes:
    """Read what a library has left in memory."""
    return ctypes.string_at(address, 8)


def misbehave(fault: str, loss: float) -> None:
    """What the one rank does in the middle."""
    if fault in ("left", "left_quietly"):
        sys.exit(0)
    if fault == "raises_on":
        Mirror()
    if fault in ("raises", "raises_on"):
        check(loss)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "segfault":
        read_header(FEATURES)  # an offset, not an address


def meet(step: int) -> None:
    """Go on when all ranks are here."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"step-{step}-rank-{dist.get_rank()}", "here")
    store.wait([f"step-{step}-rank-{rank}" for rank in range(dist.get_world_size())])


def train(options: argparse.Namespace) -> None:
    """All steps."""
    rank = dist.get_rank()
    concerned = rank == options.rank
    quietly = options.fault == "left_quietly"
    model: nn.Module = nn.Linear(FEATURES, 1)
    model = model if quietly else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(options.at if options.fault == "lingers" else 2 * options.at):
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        if step == options.at and concerned:
            if options.fault == "thread":
                Mirror()
                return
            misbehave(options.fault, loss.item())
        torch.autograd.backward(loss)
        optimizer.step()
        if quietly:
            meet(step)
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()
    if options.fault == "lingers" and concerned:
        Mirror()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    train(options)


if __name__ == "__main__":
    main()
