"""A healthy DDP job whose steps do not all take the same time (``--rhythm``), as much or little as it prints.

``first_step``: the first takes 40 times the later ones, the device works and the process sleeps.
``doubles``: every step takes twice as long from the middle on. ``heavy_tail``: each rank draws its steps from
a distribution whose longest are a hundred times the usual ones. ``steady``: none of these. It knows nothing
of Rankscope.
"""

from __future__ import annotations

import argparse
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 32
BATCH = 16
LONGEST = 10.0
TAIL = 1.1
"""Shape of the Pareto distribution: the smaller, the heavier its tail."""


def durations(rhythm: str, steps: int, step_time: float, rank: int) -> list[float]:
    """How long each step of this rank takes."""
    times = [step_time] * steps
    if rhythm == "first_step":
        times[0] = 40 * step_time
    elif rhythm == "doubles":
        times[steps // 2 :] = [2 * step_time] * (steps - steps // 2)
    elif rhythm == "heavy_tail":
        draw = random.Random(rank)
        times = [min(LONGEST, step_time * draw.paretovariate(TAIL)) for _ in range(steps)]
    return times


def chatter(done: threading.Event) -> None:
    """Print all the time, as a monitoring thread does."""
    while not done.wait(0.01):
        print("memory 3.1 GB, queue 0, temperature 61 C", flush=True)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    rhythms = ["steady", "first_step", "doubles", "heavy_tail"]
    parser.add_argument("--rhythm", default="steady", choices=rhythms)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--output", default="steps", choices=["none", "steps", "always"])
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    done = threading.Event()
    if options.output == "always":
        threading.Thread(target=chatter, args=(done,), daemon=True).start()
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, seconds in enumerate(durations(options.rhythm, options.steps, options.step_time, rank)):
        features = torch.randn(BATCH, FEATURES)
        time.sleep(seconds)
        loss = nn.functional.mse_loss(model(features), features.sum(1, keepdim=True))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if options.output == "steps" and rank == 0:
            print(f"step {step} took {seconds:.2f} s, loss {loss.item():.4f}", flush=True)
    done.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
