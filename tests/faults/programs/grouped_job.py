"""Training with process groups of parts of the ranks, which stops at one step (``--fault``).

``chain``: every rank shares something with the next one in a group of two, the last one (``--rank``) waits
for its targets instead. ``cycle``: two ranks (``--rank``, ``--partner``) use their two groups in different
order. ``lone_group``: one rank makes a new group of all ranks, the others do not. It knows nothing of
Rankscope.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 20
FAULTS = ["chain", "cycle", "lone_group"]


def fetch_targets() -> torch.Tensor:
    """Wait until somebody has labelled the batch."""
    time.sleep(3600.0)  # stuck here: chain
    return torch.zeros(8, 1)


class Neighbours:
    """Groups of two along a row of all ranks that ends at one of them."""

    def __init__(self, last: int) -> None:
        ranks = dist.get_world_size()
        row = [(last + 1 + place) % ranks for place in range(ranks)]
        pairs = [dist.new_group([one, other]) for one, other in pairwise(row)]
        place = row.index(dist.get_rank())
        self.behind = pairs[place - 1] if place > 0 else None
        self.ahead = pairs[place] if place < ranks - 1 else None

    def pass_back(self, value: torch.Tensor) -> None:
        """From the end of the row to its begin."""
        if self.ahead is not None:
            dist.all_reduce(value, group=self.ahead)
        if self.behind is not None:
            dist.all_reduce(value, group=self.behind)


class Pair:
    """Two groups of the same two ranks, for two kinds of traffic."""

    def __init__(self, one: int, other: int) -> None:
        self.groups = [dist.new_group([one, other]), dist.new_group([one, other])]
        self.is_member = dist.get_rank() in (one, other)

    def share(self, value: torch.Tensor, *, reverse: bool) -> None:
        """Sum up over both."""
        for group in reversed(self.groups) if reverse else self.groups:
            dist.all_reduce(value, group=group)  # stuck here: cycle


def make_scoring_group() -> None:
    """A group for the next evaluation."""
    dist.new_group(list(range(dist.get_world_size())))  # stuck here: lone_group


def average_gradients(model: nn.Module) -> None:
    """The mean over all ranks."""
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--partner", type=int, default=2)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    neighbours = Neighbours(options.rank) if options.fault == "chain" else None
    pair = Pair(options.rank, options.partner) if options.fault == "cycle" else None
    for step in range(3 * options.at):
        strays = step == options.at and rank == options.rank
        if strays and options.fault == "lone_group":
            make_scoring_group()
        loss = model(torch.rand(8, FEATURES)).square().mean()
        if neighbours is not None:
            if strays:
                loss = (model(torch.rand(8, FEATURES)) - fetch_targets()).square().mean()
            neighbours.pass_back(loss.detach().clone())
        if pair is not None and pair.is_member:
            pair.share(loss.detach().clone(), reverse=strays)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        average_gradients(model)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
