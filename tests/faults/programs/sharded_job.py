"""Training with FSDP2, which stops at one step (``--fault``).

``data``: a rank waits for its next batch, the others for its shard of the weights. ``state``: a rank collects
the whole model's state, and the others count the tokens of the next batch. ``state_sizes``: the same, and the
others gather weights of another size for the next batch. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FEATURES = 32
FAULTS = ["data", "state", "state_sizes"]


class Records:
    """Batches, which come from somewhere else."""

    def __init__(self, end: int) -> None:
        self.end = end

    def fetch(self, step: int) -> torch.Tensor:
        """The batch of a step."""
        if step == self.end:
            time.sleep(3600.0)  # stuck here: data
        return torch.rand(8, FEATURES)


def collect_weights(model: nn.Module) -> int:
    """How many values the whole model has."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))  # stuck here: state
    return len(whole)


def count_tokens(batch: torch.Tensor) -> torch.Tensor:
    """Of all ranks' batches."""
    tokens = torch.tensor([float(batch.numel())])
    dist.all_reduce(tokens)
    return tokens


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
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    odd = rank == options.rank
    records = Records(options.at if odd and options.fault == "data" else -1)
    for step in range(3 * options.at):
        if odd and step == options.at and options.fault != "data":
            collect_weights(model)
        batch = records.fetch(step)
        if options.fault == "state":
            count_tokens(batch)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
