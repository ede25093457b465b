"""Training with functional collectives; one rank waits for new samples at one step, the others for it.

It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional

FEATURES = 20


def draw_samples(*, fresh: bool) -> torch.Tensor:
    """Samples; fresh ones come from a simulation."""
    if fresh:
        time.sleep(3600.0)  # stuck here
    return torch.rand(8, FEATURES)


def mean_of(value: torch.Tensor) -> torch.Tensor:
    """The mean over all ranks."""
    summed = functional.all_reduce(value, "sum", list(range(dist.get_world_size())))
    return torch.div(summed, dist.get_world_size())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(3 * options.at):
        batch = draw_samples(fresh=step == options.at and rank == options.rank)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(mean_of(parameter.grad))
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
