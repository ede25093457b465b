"""A training script with DeepSpeed (ZeRO 1). It knows nothing of Rankscope.

``diag run --nproc-per-node=2 deepspeed_job.py`` trains it on the CPU, in place of the ``deepspeed`` launcher.
``--stuck-rank`` and ``--shard`` are for trying it out: that rank reads the file at step 20, and a named
pipe that nobody writes to never answers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import deepspeed
import torch
from torch import nn

FEATURES = 16
STUCK_STEP = 20
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


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
    deepspeed.init_distributed("gloo")
    model = nn.Linear(FEATURES, 1)
    engine, _optimizer, _loader, _schedule = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG
    )
    for step in range(options.steps):
        if step == STUCK_STEP and torch.distributed.get_rank() == options.stuck_rank:
            read_shard(options.shard)
        loss = engine(torch.rand(8, FEATURES)).square().mean()
        engine.backward(loss)
        engine.step()
        time.sleep(0.05)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
