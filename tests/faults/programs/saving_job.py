"""A job that saves or reloads its shards once, and the storage of one rank does not answer (``--fault``).

``write``: the shard's file cannot be opened. ``upload``: the shard is piped into a command that does not take
it. ``read``: the shard that is to be reloaded never comes. A named pipe whose other end nobody opens stands
for the dead storage. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 200


def write_shard(path: Path, model: nn.Module) -> None:
    """Write a shard."""
    torch.save(model.state_dict(), path)  # stuck here: write


def send_shard(command: list[str], model: nn.Module) -> None:
    """Send a shard away without a file in between."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as sender:
        assert sender.stdin is not None
        torch.save(model.state_dict(), sender.stdin)  # stuck here: upload


def fetch_shard(path: Path, model: nn.Module) -> None:
    """Go back to a shard."""
    state = torch.load(path, weights_only=True)  # stuck here: read
    model.load_state_dict(state)


def use_storage(fault: str, folder: Path, model: nn.Module, *, dead: bool) -> None:
    """Save the shard of this rank, or save and reload it."""
    path = folder / f"shard-{dist.get_rank()}.pt"
    if not dead:
        write_shard(path, model)
        fetch_shard(path, model)
    elif fault == "upload":
        send_shard(["sleep", "600"], model)
    else:
        os.mkfifo(path)
        write_shard(path, model) if fault == "write" else fetch_shard(path, model)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["write", "upload", "read"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=1, help="-1: every rank")
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    options.folder.mkdir(parents=True, exist_ok=True)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(2 * options.at):
        if step == options.at:
            use_storage(options.fault, options.folder, model, dead=options.rank in (rank, -1))
            dist.barrier()
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
