"""A small but real training run: DDP over gloo, a data loader, checkpoints. It knows nothing of Rankscope.

One rank gets stuck at one step, in its first life only (``--fault``); after a restart the run resumes from
its checkpoint and finishes.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FEATURES = 16
BATCH = 8


class Shards(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that are read from shards; the reading of one of them may never return."""

    def __init__(self, length: int, stuck_at: int, folder: Path) -> None:
        self.length = length
        self.stuck_at = stuck_at
        self.folder = folder

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        pipe = self.folder / f"shard-{os.getpid()}"
        if index == self.stuck_at:
            os.mkfifo(pipe)
        return read_shard(index, pipe)


def read_shard(index: int, pipe: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Read one sample; a stuck shard is a pipe that nobody writes to."""
    if pipe.exists():
        pipe.read_bytes()
    features = torch.full((FEATURES,), float(index % 7))
    return features, features.sum().unsqueeze(0)


class MetricsWriter:
    """Writes metrics under a lock; a writer that never lets go of it is the fault ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def write(self, step: int, loss: float) -> None:
        """Print the metrics of a step."""
        with self.lock:
            print(f"step {step} loss {loss:.3f}", flush=True)

    def flush_forever(self) -> None:
        """Take the lock and never give it back."""
        with self.lock:
            threading.Event().wait()


def stop_here() -> None:
    """Stop this process as a debugger or a batch system does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def inject(fault: str, writer: MetricsWriter) -> None:
    """Make this rank misbehave now."""
    if fault == "lock":
        threading.Thread(target=writer.flush_forever, daemon=True).start()
        while not writer.lock.locked():
            time.sleep(0.01)
    elif fault == "frozen":
        stop_here()
    elif fault == "crash":
        raise ValueError("the loss is not a number")
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Resume; the step to go on with."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"resumed from step {state['step']}", flush=True)
    return int(state["step"])


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save beside and rename, so that a killed run leaves a whole checkpoint."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--fault-rank", type=int, default=2, help="-1: every rank")
    parser.add_argument("--fault-step", type=int, default=25)
    options = parser.parse_args()

    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    faulty = first_life and options.fault_rank in (rank, -1)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    start = load_checkpoint(options.checkpoint, model.module, optimizer)
    writer = MetricsWriter()

    stuck_at = (
        options.fault_step * BATCH if faulty and options.fault in ("data_loading", "loader_worker") else -1
    )
    workers = int(options.fault == "loader_worker")
    loader = DataLoader(
        Shards(options.steps * BATCH, stuck_at, options.checkpoint.parent),
        batch_size=BATCH,
        num_workers=workers,
    )
    for step, (features, target) in enumerate(loader):
        if step < start:
            continue
        if faulty and step == options.fault_step:
            inject(options.fault, writer)
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0 or (faulty and step == options.fault_step):
            writer.write(step, loss.item())
        if rank == 0 and step % 5 == 4:
            save_checkpoint(options.checkpoint, model.module, optimizer, step + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
