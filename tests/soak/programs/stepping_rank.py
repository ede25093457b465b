"""A rank that makes short steps and counts them itself, until a file appears. It knows no launcher.

``<folder>/<rank>`` holds its own numbers (``FORM``): steps made, nanoseconds of wall time and of CPU time in
them (sleep left out), messages sent, and 1 once it makes no more steps. A step is counted after the probe has
seen it. ``torch`` ranks make optimizer steps and an all_reduce in every tenth, ``plain`` ones count in Python
and tell the agent by ``Monitor.step``; all ranks of a ``torch`` job stop at the same step.
"""

from __future__ import annotations

import argparse
import atexit
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rankscope.watchdog import environment, job_monitor

FORM: Final = struct.Struct("<QQQQQ")
_TOGETHER: Final = 10
_PRINT_EVERY: Final = 100
_WORK: Final = 2_000
_WIDTH: Final = 32

Step = Callable[[int], bool]
"""Makes a step; whether it was the last one."""


def own_numbers(path: Path) -> mmap.mmap:
    """The rank's file, mapped."""
    beside = path.with_suffix(".new")
    beside.write_bytes(bytes(FORM.size))
    file = os.open(beside, os.O_RDWR)
    numbers = mmap.mmap(file, FORM.size)
    os.close(file)
    beside.replace(path)
    return numbers


def torch_step(stop: Path) -> Step:
    """Steps of an optimizer, with a collective in which the ranks agree on the last one."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)
    model = torch.nn.Linear(_WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.ones(_WIDTH, _WIDTH)

    def step(number: int) -> bool:
        optimizer.zero_grad()
        torch.autograd.backward(model(batch).square().mean())
        optimizer.step()
        if number % _TOGETHER:
            return False
        over = torch.tensor(int(stop.exists()))
        dist.all_reduce(over)
        return bool(over)

    return step


def plain_step(stop: Path) -> Step:
    """Steps that only count. Under torchrun they tell nobody, as a script without Rankscope does."""
    told = job_monitor.Monitor().step if environment.PAGE in os.environ else None

    def step(number: int) -> bool:
        total = 0
        for each in range(_WORK):
            total += each * each
        if told is not None:
            told(number)
        return number % _TOGETHER == 0 and stop.exists()

    return step


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    parser.add_argument("--kind", choices=("torch", "plain"), default="torch")
    parser.add_argument("--step-time", type=float, default=0.01)
    parser.add_argument("--message-every", type=float, default=0.0)
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    step = {"torch": torch_step, "plain": plain_step}[options.kind](options.stop)
    monitor = job_monitor.Monitor()
    numbers = own_numbers(options.folder / str(rank))
    count = wall = cpu = sent = 0
    due = time.monotonic() + options.message_every
    is_over = False
    while not is_over:
        begin, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        is_over = step(count + 1)
        wall += time.perf_counter_ns() - begin
        cpu += time.thread_time_ns() - begin_cpu
        count += 1
        if rank == 0 and options.message_every and time.monotonic() >= due:
            due += options.message_every
            sent += monitor.send_custom_message(f"at step {count}").ok()
        numbers[:] = FORM.pack(count, wall, cpu, sent, int(is_over))
        if count % _PRINT_EVERY == 0:
            print(f"step {count}", flush=True)
        time.sleep(options.step_time)


if __name__ == "__main__":
    main()
