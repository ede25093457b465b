"""Training with DistributedDataParallel, whose ranks part at one step (``--fault``).

``unused``: one rank's batch needs only one of the model's two heads, and DDP was not told that this may be.
``uneven``: one rank has one batch more than the others. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 20
FAULTS = ["unused", "uneven"]


class TwoHeads(nn.Module):
    """A trunk with a head for each of two tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(FEATURES, FEATURES)
        self.first = nn.Linear(FEATURES, 1)
        self.second = nn.Linear(FEATURES, 1)

    def forward(self, batch: torch.Tensor, *, both: bool) -> torch.Tensor:
        """One task's answer, or the sum of both."""
        shared = self.trunk(batch)
        answer: torch.Tensor = self.first(shared)
        return answer + self.second(shared) if both else answer


def update(model: nn.Module, optimizer: torch.optim.Optimizer, *, both: bool) -> float:
    """Forward, backward, step."""
    loss = model(torch.rand(8, FEATURES), both=both).square().mean()
    optimizer.zero_grad()
    torch.autograd.backward(loss)  # stuck here: uneven
    optimizer.step()
    return float(loss.detach())


def tell_loss(loss: float) -> list[float]:
    """Every rank's loss."""
    losses = [0.0] * dist.get_world_size()
    dist.all_gather_object(losses, loss)  # stuck here: unused
    return losses


def end_epoch() -> None:
    """Meet at the end of the epoch."""
    dist.barrier()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    odd = rank == options.rank
    steps = 3 * options.at
    if options.fault == "uneven":
        steps = options.at + 1 if odd else options.at
    for step in range(steps):
        both = not (options.fault == "unused" and odd and step == options.at)
        loss = update(model, optimizer, both=both)
        if options.fault == "unused":
            tell_loss(loss)
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    end_epoch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
