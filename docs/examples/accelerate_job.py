"""A training script with Hugging Face's accelerate. It knows nothing of Rankscope.

``diag run --nproc-per-node=2 accelerate_job.py`` trains it on the CPU. ``--stuck-rank`` and ``--shard`` are
for the tests: that rank reads the file at step 20, and a named pipe that nobody writes to never answers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 16
STUCK_STEP = 20


def read_shard(path: Path) -> bytes:
    """Read one file of the training data."""
    return path.read_bytes()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--stuck-rank", type=int, default=-1)
    parser.add_argument("--shard", type=Path)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.rand(options.steps * 16, FEATURES), torch.rand(options.steps * 16, 1))
    model = nn.Linear(FEATURES, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-3), DataLoader(data, batch_size=8)
    )
    for step, (features, target) in enumerate(loader):
        if step == STUCK_STEP and accelerator.process_index == options.stuck_rank:
            read_shard(options.shard)
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        time.sleep(0.05)
    accelerator.end_training()


if __name__ == "__main__":
    main()
