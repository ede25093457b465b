"""A job that hangs at one step though something still goes on in it (``--fault``).

``logging_thread``: a thread of the stuck rank prints on. ``polling``: its main thread prints while it waits
for a file that never comes. ``spinning``: it spins in a Python loop. ``signals``: it answers a timer's
signals and goes on waiting. ``message``: it only waits. ``store_key``: all ranks wait for a key that nobody
sets. With ``--spin`` the waiting ranks spin as CUDA and NCCL do. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import queue
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 20


class Prefetcher:
    """Hands out batches; after its last one the queue stays empty."""

    def __init__(self) -> None:
        self.batches: queue.Queue[torch.Tensor] = queue.Queue()

    def next_batch(self) -> torch.Tensor:
        """The next batch."""
        return self.batches.get()


class Flag:
    """Something that another part of the program was to set."""

    ready = False

    def wait_until_ready(self) -> None:
        """Spin until it is set."""
        while not self.ready:
            pass


def report_forever() -> None:
    """Print figures as a monitoring thread does."""
    while True:
        print("throughput 0.0 samples/s", flush=True)
        time.sleep(0.2)


def wait_for_marker(marker: Path, poll: float) -> None:
    """Wait until another job has written a file."""
    while not marker.exists():
        print(f"waiting for {marker.name}", flush=True)
        time.sleep(poll)


def wait_for_settings() -> None:
    """Wait for rank 0's settings, which it never wrote."""
    store = dist.distributed_c10d._get_default_store()
    store.get("settings-of-epoch-2")


def wait_for_peer(inbox: threading.Condition) -> None:
    """Wait for a message."""
    with inbox:
        inbox.wait()


def on_alarm(_number: int, _frame: FrameType | None) -> None:
    """Say that this rank is alive."""
    print("still alive", flush=True)


def hang(fault: str, marker: Path, poll: float) -> None:
    """What the stuck rank does."""
    if fault == "logging_thread":
        threading.Thread(target=report_forever, daemon=True).start()
        Prefetcher().next_batch()
    elif fault == "polling":
        wait_for_marker(marker, poll)
    elif fault == "spinning":
        Flag().wait_until_ready()
    elif fault == "store_key":
        wait_for_settings()
    elif fault == "message":
        wait_for_peer(threading.Condition())
    elif fault == "signals":
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
        wait_for_peer(threading.Condition())


def all_reduce(tensor: torch.Tensor, *, spin: bool) -> None:
    """Wait for the others, asleep or spinning."""
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    if spin:
        while not work.is_completed():
            pass
    else:
        work.wait()


def main() -> None:
    """Train until the fault."""
    parser = argparse.ArgumentParser()
    faults = ["logging_thread", "message", "polling", "signals", "spinning", "store_key"]
    parser.add_argument("--fault", choices=faults, required=True)
    parser.add_argument("--rank", type=int, default=1, help="-1: every rank")
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--spin", action="store_true")
    parser.add_argument("--marker", type=Path, default=Path("ready"))
    parser.add_argument("--poll", type=float, default=0.5)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(2 * options.at):
        if step == options.at and options.rank in (rank, -1):
            hang(options.fault, options.marker, options.poll)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            if parameter.grad is not None:
                all_reduce(parameter.grad, spin=options.spin)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
