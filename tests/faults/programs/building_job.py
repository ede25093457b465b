"""A healthy job that builds its kernels in a child process for long, before the first step or later.

All ranks build (``--who all``), or rank 0 does so for all while the others wait in a barrier. It knows
nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMPILER = """
import sys, time
until = time.monotonic() + float(sys.argv[1])
done = 0
while time.monotonic() < until:
    done += sum(range(2000))
"""


def build_kernels(seconds: float) -> None:
    """Run the compiler."""
    subprocess.run([sys.executable, "-c", COMPILER, str(seconds)], check=True)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--build-at", type=int, default=0)
    parser.add_argument("--who", choices=["all", "0"], default="all")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-time", type=float, default=0.15)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(24, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        if step == options.build_at:
            if options.who in ("all", str(rank)):
                build_kernels(options.seconds)
            dist.barrier()
        loss = model(torch.rand(8, 24)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
