"""A job one rank of which never reaches ``init_process_group`` while the others wait for it there."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch.distributed as dist


def claim_device() -> None:
    """Wait for a device that is never given: a pipe that nobody writes to."""
    pipe = Path(tempfile.mkdtemp()) / "device"
    os.mkfifo(pipe)
    pipe.read_bytes()


def main() -> None:
    """Meet the other ranks, or not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--late-rank", type=int, required=True)
    options = parser.parse_args()
    if int(os.environ["RANK"]) == options.late_rank:
        claim_device()
    dist.init_process_group("gloo")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
