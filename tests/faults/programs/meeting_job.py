"""Training whose ranks also meet through the store and in monitored barriers, and miss (``--fault``).

``absent``: a rank never comes to ``init_process_group``. ``lone_key``: it waits for a key that nobody writes.
``no_key``: all ranks do. ``late_key``: it waits for something else before it writes the key that the others
wait for. ``monitored``: it never comes to a ``monitored_barrier``. ``lone_monitored``: it alone comes to one.
It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 20
FAULTS = ["absent", "lone_key", "no_key", "late_key", "monitored", "lone_monitored"]
LONG = timedelta(minutes=30)


def wait_for_licence() -> None:
    """Wait until the licence server has a seat."""
    time.sleep(3600.0)  # stuck here: absent


def plan_epoch() -> str:
    """Wait until the scheduler has a plan."""
    time.sleep(3600.0)  # stuck here: late_key
    return "plan"


def warm_cache() -> None:
    """Wait until the cache is filled."""
    time.sleep(3600.0)  # stuck here: monitored


def read_plan(key: str) -> bytes:
    """What another rank has written into the store."""
    plan: bytes = dist.distributed_c10d._get_default_store().get(key)  # stuck here: key
    return plan


def write_plan(key: str) -> None:
    """Write it."""
    dist.distributed_c10d._get_default_store().set(key, plan_epoch())


def meet_all() -> None:
    """Meet, and hear who does not come."""
    dist.monitored_barrier(timeout=LONG)  # stuck here: lone_monitored


def begin_epoch(fault: str, *, strays: bool) -> None:
    """What comes between two epochs."""
    if fault == "no_key" or (fault == "lone_key" and strays):
        read_plan("plan-of-epoch-2")
    elif fault == "late_key":
        (write_plan if strays else read_plan)("plan-of-epoch-2")
    elif fault == "monitored":
        if strays:
            warm_cache()
        meet_all()
    elif fault == "lone_monitored" and strays:
        meet_all()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    print(f"rank {rank} has started", flush=True)
    if options.fault == "absent" and rank == options.rank:
        wait_for_licence()
    dist.init_process_group("gloo")
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(3 * options.at):
        if step == options.at:
            begin_epoch(options.fault, strays=rank == options.rank)
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
