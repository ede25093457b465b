"""Training whose ranks send each other messages, which stops at one step (``--fault``).

``stage``: a pipeline one stage of which waits for its data. ``unsent``: a rank expects settings that its
neighbour does not send. ``ring``: every rank sends to the next before it receives. ``halo``: neighbours swap
their edges in one batch, one rank waits for its part of the grid first. ``one_sided``: the same batch, from
which one rank leaves out its send. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 20
FAULTS = ["stage", "unsent", "ring", "halo", "one_sided"]


def wait_for_shard() -> None:
    """Wait until another job has written this rank's data."""
    time.sleep(3600.0)  # stuck here: stage


def wait_for_grid() -> None:
    """Wait until the mesh of this rank's region is refined."""
    time.sleep(3600.0)  # stuck here: halo


def run_stage(value: torch.Tensor) -> None:
    """Take a micro-batch from the stage before, hand it to the next."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(value, src=rank - 1)
    if rank < ranks - 1:
        dist.send(value + 1, dst=rank + 1)


def receive_settings() -> torch.Tensor:
    """The next rank's settings."""
    settings = torch.zeros(4)
    dist.recv(settings, src=(dist.get_rank() + 1) % dist.get_world_size())  # stuck here: unsent
    return settings


def swap_in_turn(value: torch.Tensor) -> None:
    """Round the ring, the even ranks first."""
    after, before = neighbours()
    if dist.get_rank() % 2 == 0:
        dist.send(value, dst=after)
        dist.recv(value, src=before)
    else:
        got = torch.zeros_like(value)
        dist.recv(got, src=before)
        dist.send(value, dst=after)


def swap_at_once(value: torch.Tensor) -> None:
    """Round the ring, all at the same time."""
    after, before = neighbours()
    got = torch.zeros_like(value)
    dist.send(value, dst=after)  # stuck here: ring
    dist.recv(got, src=before)


def swap_edges(edge: torch.Tensor, *, gives: bool = True) -> torch.Tensor:
    """Give the edge to the next rank and take the one of the rank before."""
    after, before = neighbours()
    got = torch.zeros_like(edge)
    swaps = [dist.P2POp(dist.isend, edge, after)] if gives else []
    swaps.append(dist.P2POp(dist.irecv, got, before))
    for request in dist.batch_isend_irecv(swaps):
        request.wait()  # stuck here: one_sided
    return got


def neighbours() -> tuple[int, int]:
    """The rank after this one and the rank before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return (rank + 1) % ranks, (rank - 1) % ranks


def exchange(fault: str, value: torch.Tensor, *, now: bool, strays: bool) -> None:
    """The messages of a step."""
    if fault == "stage":
        if strays:
            wait_for_shard()
        run_stage(value)
    elif fault == "unsent" and strays:
        receive_settings()
    elif fault == "ring":
        (swap_at_once if now else swap_in_turn)(value)
    elif fault == "halo":
        if strays:
            wait_for_grid()
        swap_edges(value)
    elif fault == "one_sided":
        swap_edges(value, gives=not strays)


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
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(3 * options.at):
        now = step == options.at
        exchange(options.fault, torch.rand(FEATURES), now=now, strays=now and rank == options.rank)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if options.fault != "stage":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
