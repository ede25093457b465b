"""Launches independent workers that are functions; prints what they returned, and what is left of them.

Rank 1 is killed in its first life, rank 2 raises in its first; both are started again alone.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent import launch

MULTIPROCESSINGS_OWN = "resource_tracker"


def work(base: int) -> int:
    """A worker."""
    rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if rank == 1 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2 and first:
        raise RuntimeError("in the first life")
    return base + rank


def children() -> list[str]:
    """Command lines of this process' children, zombies included."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            command = (Path("/proc") / pid / "cmdline").read_bytes().decode(errors="replace")
            if MULTIPROCESSINGS_OWN not in command:
                found.append(command or f"zombie {pid}")
    return found


def descriptors() -> list[str]:
    """What is open."""
    gc.collect()
    # The listing's own is gone by the time it is looked at.
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())


def run(folder: Path) -> dict[int, int]:
    """Launch once."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=3,
        run_id="functions",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=2,
        monitor_interval=0.1,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs")),
    )
    return launch(config, work)(100)


def main() -> None:
    """Launch twice: what the first one leaves open for good (torch's own) is no leak."""
    folder = Path(sys.argv[1])
    returned = [run(folder)]
    before, threads = len(descriptors()), threading.active_count()
    returned.append(run(folder))
    left = {
        "returned": returned,
        "children": children(),
        "descriptors": len(descriptors()) - before,
        "threads": threading.active_count() - threads,
        "ours": [one.name for one in threading.enumerate() if one.name.startswith("rankscope")],
    }
    sys.stdout.write(json.dumps(left))


if __name__ == "__main__":
    main()
