"""A training script with Ray Train. It knows nothing of Rankscope, and Ray starts its workers.

``python ray_train_job.py`` trains it on the CPU. ``--stuck-rank`` and ``--shard`` are for trying it out: that
rank reads the file at step 20, and a named pipe that nobody writes to never answers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

FEATURES = 16
STUCK_STEP = 20


def read_shard(path: Path) -> bytes:
    """Read one file of the training data."""
    return path.read_bytes()


def train(config: dict[str, str]) -> None:
    """What every worker runs."""
    model = prepare_model(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(int(config["steps"])):
        if step == STUCK_STEP and get_context().get_world_rank() == int(config["stuck_rank"]):
            read_shard(Path(config["shard"]))
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", default="40")
    parser.add_argument("--stuck-rank", default="-1")
    parser.add_argument("--shard", default="")
    config = vars(parser.parse_args())
    TorchTrainer(train, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()


if __name__ == "__main__":
    main()
