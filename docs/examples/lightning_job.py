"""A training script with Lightning. It knows nothing of Rankscope.

``diag run --nproc-per-node=2 lightning_job.py`` trains it on the CPU. ``--stuck-rank`` and ``--shard`` are
for the tests: that rank reads the file at step 20, and a named pipe that nobody writes to never answers.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 16
STUCK_STEP = 20


def read_shard(path: Path) -> bytes:
    """Read one file of the training data."""
    return path.read_bytes()


class Regression(lightning.LightningModule):
    """A small model.

    Args:
        stuck_rank: the rank that reads ``shard``, -1 for none.
        shard: the file.
    """

    def __init__(self, stuck_rank: int, shard: Path) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)
        self.stuck_rank = stuck_rank
        self.shard = shard

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """One step's loss."""
        if batch_idx == STUCK_STEP and self.global_rank == self.stuck_rank:
            read_shard(self.shard)
        time.sleep(0.05)
        features, target = batch
        return nn.functional.mse_loss(self.layer(features), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--stuck-rank", type=int, default=-1)
    parser.add_argument("--shard", type=Path, default=Path())
    options = parser.parse_args()
    data = TensorDataset(torch.rand(options.steps * 16, FEATURES), torch.rand(options.steps * 16, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "2")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(options.stuck_rank, options.shard), DataLoader(data, batch_size=8, num_workers=0))


if __name__ == "__main__":
    main()
