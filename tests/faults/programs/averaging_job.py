"""Data-parallel training by hand, whose ranks part at one step: one or two go another way (``--fault``).

``missing``, ``two_missing``: they wait for a service instead of reducing the gradients. ``pile``: the same,
while the others start one reduction after the other before they wait for any. ``short``: a rank has one batch
less and is done early. ``other_op``: it gathers what the others sum up. ``branch``: it meets the others in a
barrier that only it has. ``evaluation``: it evaluates alone, and gathers the scores. ``memory``: it runs out
of memory, skips the batch and trains on. ``empty``, ``shorter``, ``narrower``, ``wider``: it calls the same
with no elements, with fewer, with smaller or with larger ones. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 20
EPOCH = 10
DRAIN = 20
WAITS = ["missing", "two_missing", "pile"]
CALLS = ["short", "other_op", "branch", "evaluation", "memory"]
SIZES = ["empty", "shorter", "narrower", "wider"]
TYPES = {"narrower": torch.float16, "wider": torch.float64}


def ask_service() -> None:
    """Wait until the learning rate's service answers."""
    time.sleep(3600.0)  # stuck here: service


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """All gradients in one tensor."""
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def put_gradients(model: nn.Module, flat: torch.Tensor) -> None:
    """Give every parameter its part of them again."""
    begin = 0
    for one in model.parameters():
        if one.grad is None:
            continue
        one.grad = flat[begin : begin + one.numel()].view_as(one).clone()
        begin += one.numel()


def average_gradients(model: nn.Module, as_type: torch.dtype = torch.float32) -> None:
    """The mean over all ranks."""
    flat = flat_gradients(model).to(as_type)
    dist.all_reduce(flat)  # stuck here: empty
    put_gradients(model, flat.float() / dist.get_world_size())


def share_lengths(records: int) -> torch.Tensor:
    """The summed lengths of the records that did not fit into the batch."""
    lengths = torch.full((records,), 1.0)
    dist.all_reduce(lengths)
    return lengths


def share_spread(value: torch.Tensor, *, keep_all: bool) -> torch.Tensor:
    """The mean of a figure over all ranks; with each rank's own one kept, when that is wanted."""
    if keep_all:
        every = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(every, value)  # stuck here: other_op
        return torch.stack(every).mean()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def publish_weights() -> None:
    """Meet the others before the weights are read."""
    dist.barrier()  # stuck here: branch


def score_held_out(model: nn.Module) -> list[float]:
    """Every rank's score on its part of the held-out data."""
    with torch.no_grad():
        score = float(model(torch.rand(32, FEATURES)).mean())
    scores: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(scores, score)  # stuck here: evaluation
    return scores


def tell_epoch(losses: list[float]) -> list[list[float]]:
    """Every rank's losses of the last steps."""
    told: list[list[float]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(told, losses)  # stuck here: memory
    return told


def close_run() -> None:
    """Leave together."""
    dist.barrier()  # stuck here: short


def reduce_later(model: nn.Module, pending: list[dist.Work]) -> None:
    """Start a reduction; wait for those before it only now and then."""
    work = dist.all_reduce(flat_gradients(model), async_op=True)
    assert work is not None
    pending.append(work)


def drain(pending: list[dist.Work]) -> None:
    """Wait for all reductions that were started."""
    for work in pending:
        work.wait()
    pending.clear()


def sample(features: int, *, huge: bool) -> torch.Tensor:
    """A batch; once in a while one with very long records."""
    return torch.rand(1 << 50 if huge else 8, features)


def loss_of(model: nn.Module, *, huge: bool) -> torch.Tensor | None:
    """The loss of the next batch; ``None`` when it does not fit into memory."""
    try:
        loss: torch.Tensor = model(sample(FEATURES, huge=huge)).square().mean()
    except RuntimeError as error:  # what torch raises on a CPU
        print(f"batch skipped: {error}", flush=True)
        return None
    return loss


class Trainer:
    """The training loop."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = dist.get_rank()
        self.fault = str(options.fault)
        self.model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.pending: list[dist.Work] = []
        self.losses: list[float] = []

    def strays(self, step: int, fault: str) -> bool:
        """Whether this rank goes another way now."""
        ranks = {self.options.rank, self.options.second if fault == "two_missing" else -1}
        return self.fault == fault and step == self.options.at and self.rank in ranks

    def step(self, step: int) -> None:
        """One step."""
        if any(self.strays(step, fault) for fault in WAITS):
            ask_service()
        if self.strays(step, "branch"):
            publish_weights()
        if self.strays(step, "evaluation"):
            score_held_out(self.model)
        if self.fault == "empty":
            share_lengths(0 if self.strays(step, "empty") else 16)
        if self.strays(step, "shorter"):
            self.model[0].requires_grad_(False)
        loss = loss_of(self.model, huge=self.strays(step, "memory"))
        if loss is None:
            return
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        if self.fault == "pile":
            reduce_later(self.model, self.pending)
            if step % DRAIN == DRAIN - 1:
                drain(self.pending)
        else:
            odd = self.strays(step, self.fault)
            average_gradients(self.model, TYPES.get(self.fault, torch.float32) if odd else torch.float32)
        self.optimizer.step()
        self.losses.append(float(loss.detach()))
        if self.fault == "other_op":
            share_spread(loss.detach(), keep_all=self.strays(step, "other_op"))
        time.sleep(self.options.step_time)

    def run(self) -> None:
        """All steps; a rank may have fewer batches than the others."""
        fewer = self.fault == "short" and self.rank == self.options.rank
        steps = self.options.at + (0 if fewer else 1) if self.fault == "short" else 3 * self.options.at
        for step in range(steps):
            self.step(step)
            if self.rank == 0:
                print(f"step {step} loss {self.losses[-1]:.4f}", flush=True)
            if self.fault == "memory" and step % EPOCH == EPOCH - 1:
                tell_epoch(self.losses)
                self.losses = self.losses[-1:]
        close_run()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=[*WAITS, *CALLS, *SIZES], required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--second", type=int, default=2)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(options).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
