"""A healthy job without DDP that leaves its training loop for an evaluation, on all ranks or on rank 0 alone.

``--on compute`` evaluates on the CPU, ``--on device`` sleeps as a process does whose accelerator works. Rank
0's evaluation is awaited in a barrier, or in the next step's all_reduce (``--meet``). It knows nothing of
Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 48
BATCH = 32


def average_gradients(model: nn.Module) -> None:
    """What DDP does, by hand."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


@torch.no_grad()
def evaluate(model: nn.Module, seconds: float, batch_time: float, place: str) -> float:
    """Go through the validation set for so long; no optimizer, no collective."""
    model.eval()
    losses: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        features = torch.randn(BATCH, FEATURES)
        losses.append(float(model(features).square().mean()))
        if place == "device":
            time.sleep(batch_time)
    model.train()
    return sum(losses) / len(losses)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--batch-time", type=float, default=0.1)
    parser.add_argument("--on", choices=["compute", "device"], default="compute")
    parser.add_argument("--meet", choices=["barrier", "next_step"], default="next_step")
    parser.add_argument("--alone", action="store_true", help="rank 0 only")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Linear(FEATURES, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(1, options.steps + 1):
        loss = model(torch.randn(BATCH, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        average_gradients(model)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % options.every == 0 and (rank == 0 or not options.alone):
            score = evaluate(model, options.seconds, options.batch_time, options.on)
            print(f"rank {rank}: validation loss {score:.4f} after step {step}", flush=True)
        if step % options.every == 0 and options.meet == "barrier":
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
