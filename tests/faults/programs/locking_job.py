"""A job whose main thread shares locks with another one, and one rank of which deadlocks (``--fault``).

``held``: the thread keeps the lock while it waits for a word. ``crossed``: both take two locks, each in its
own order. ``join``: the main thread waits for the end of the thread, which goes on. It knows nothing of
Rankscope.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 24


class Meter:
    """Figures that the training adds to and a thread reports."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.values_lock = threading.Lock()
        self.file_lock = threading.Lock()
        self.requests: queue.Queue[str] = queue.Queue()
        self.begun = threading.Event()
        self.half_way = threading.Event()

    def add(self, value: float) -> None:
        """Take in a figure."""
        with self.values_lock:  # stuck here: held
            self.values.append(value)

    def answer(self) -> None:
        """Report to whoever asks, and let nobody change the figures meanwhile."""
        with self.values_lock:
            self.begun.set()
            self.requests.get()

    def write_out(self) -> None:
        """Write the figures out: the file first, then the figures."""
        with self.file_lock:
            self.half_way.set()
            self.begun.wait()
            with self.values_lock:  # stuck here: crossed
                self.values.clear()

    def rotate(self) -> None:
        """Begin a new file: the figures first, then the file."""
        with self.values_lock:
            self.begun.set()
            self.half_way.wait()
            with self.file_lock:
                self.values.clear()

    def serve(self) -> None:
        """Answer as long as requests come."""
        while self.requests.get() != "stop":  # stuck here: join
            self.values.clear()

    def close(self, server: threading.Thread) -> None:
        """End."""
        server.join()


def deadlock(fault: str, meter: Meter) -> None:
    """What the one rank does."""
    work = {"held": meter.answer, "crossed": meter.rotate, "join": meter.serve}[fault]
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if fault == "held":
        meter.begun.wait()
        meter.add(0.0)
    elif fault == "crossed":
        meter.write_out()
    else:
        meter.close(thread)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["held", "crossed", "join"], required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    meter = Meter()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(2 * options.at):
        if step == options.at and rank == options.rank:
            deadlock(options.fault, meter)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            work = dist.all_reduce(parameter.grad, async_op=True)
            assert work is not None
            work.wait()
        optimizer.step()
        meter.add(loss.item())
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
