"""A job one rank of which never comes back from a computation (``--fault``).

``loop``: a search in Python that does not close in on what it looks for. ``pattern``: a regular expression
that tries all ways there are. ``native_sleep``: a library that waits and keeps the GIL.
``native_thread``: the same in a thread beside the training. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 32
WORDS = re.compile(r"(?:\w+\s?)+\.")


def search(values: list[float], wanted: float) -> int:
    """The place of a value in a sorted list."""
    low, high = 0, len(values)
    while low < high:  # stuck here: loop
        middle = (low + high) // 2  # stuck here: loop
        if values[middle] <= wanted:  # stuck here: loop
            low = middle  # stuck here: loop
        else:
            high = middle  # stuck here: loop
    return low


def is_sentence(text: str) -> bool:
    """Whether a text is words and a full stop."""
    return WORDS.fullmatch(text) is not None  # stuck here: pattern


def wait_for_device(library: ctypes.PyDLL) -> None:
    """Let a vendor's library wait; it was bound as one that needs the GIL."""
    library.sleep(1_000_000)  # stuck here: native_sleep, native_thread


def compute(fault: str) -> None:
    """What the one rank does."""
    if fault == "loop":
        search([float(number) for number in range(100)], 41.5)
    elif fault == "pattern":
        is_sentence("a sentence of many long words the full stop of which has been forgotten")
    elif fault == "native_sleep":
        wait_for_device(ctypes.PyDLL(None))
    elif fault == "native_thread":
        later = threading.Timer(0.25, wait_for_device, args=(ctypes.PyDLL(None),))
        later.daemon = True
        later.start()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    faults = ["loop", "pattern", "native_sleep", "native_thread"]
    parser.add_argument("--fault", choices=faults, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(2 * options.at):
        if step == options.at and rank == options.rank:
            compute(options.fault)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
