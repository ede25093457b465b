"""A job that moves much over the network: all gradients in one tensor of ``--size`` numbers in every step.

It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 64


def share(flat: torch.Tensor) -> torch.Tensor:
    """The mean over all ranks."""
    dist.all_reduce(flat)  # stuck here
    return flat / dist.get_world_size()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-time", type=float, default=0.2)
    parser.add_argument("--size", type=int, default=250_000)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rest = torch.zeros(options.size)
    for step in range(options.steps):
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        grads = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
        mean = share(torch.cat([*grads, rest]))
        begin = 0
        for one in model.parameters():
            one.grad = mean[begin : begin + one.numel()].view_as(one).clone()
            begin += one.numel()
        optimizer.step()
        time.sleep(options.step_time)  # what an accelerator would do
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
