"""A worker of an offline inference job: goes over its shards, and commits each by renaming its finished file.

Shard N is the file ``N`` of the input folder; the result of a line is a hash of it. Worker R of W does the
shards N with N % W == R. What it has committed it does not do again: all that a worker which may be killed at
any moment has to see to. A commit that finds the result there already is written to ``twice``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

ROUNDS = 1000
"""Hashes for one line, so that a shard takes a moment."""


def infer(line: str) -> str:
    """The result of one line."""
    value = line.encode()
    for _ in range(ROUNDS):
        value = hashlib.sha256(value).digest()
    return value.hex()


def do_shard(shard: Path, results: Path) -> None:
    """Do one shard and commit it."""
    result = results / shard.name
    unfinished = results / f"{shard.name}.part{os.getpid()}"
    unfinished.write_text("".join(f"{infer(line)}\n" for line in shard.read_text().splitlines()))
    try:
        # As ``rename`` is, but it fails where somebody else has committed the same shard.
        os.link(unfinished, result)
    except FileExistsError:
        with (results.parent / "twice").open("a") as twice:
            twice.write(f"{shard.name}\n")
    unfinished.unlink()


def note_life(folder: Path) -> None:
    """Write down what this process was started with."""
    rank, count = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    wanted = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "RANKSCOPE_SLOT")
    life = {name: os.environ.get(name, "") for name in wanted} | {"pid": os.getpid()}
    unfinished = folder / f"{rank}-{count}.part"
    unfinished.write_text(json.dumps(life))
    unfinished.rename(folder / f"{rank}-{count}.json")


def main() -> None:
    """Do this worker's shards."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fail", type=int, default=-1, help="rank that raises before its first shard")
    arguments = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    note_life(arguments.folder / "lives")
    if rank == arguments.fail:
        raise RuntimeError("the model does not fit")
    results = arguments.folder / "results"
    for shard in sorted((arguments.folder / "shards").iterdir()):
        if int(shard.name) % world == rank and not (results / shard.name).exists():
            do_shard(shard, results)
    sys.stdout.write(f"rank {rank} is done\n")


if __name__ == "__main__":
    main()
