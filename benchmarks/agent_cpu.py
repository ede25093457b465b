"""Row about the agent's own CPU (NUMBERS.md): eight workers that train, watched, against plain torchrun.

Both launchers run side by side, with the same flags and so the same rendezvous, and are measured over the
same seconds: CPU time of the agent and of all its helper processes, the workers left out. The workers make
optimizer steps of 100 ms without collectives, so that two cores carry them all (programs/idle_training.py).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.jobs import Job

from benchmarks.launchers import MODULES, Launcher, launched
from benchmarks.row import Row
from rankscope.diag import proc

WORKERS: Final = 8
SECONDS: Final = 10.0
BAR: Final = 1.5
_DEADLINE: Final = 120.0
_LOOK: Final = 0.2
_WORKER: Final = Path(__file__).parent / "programs" / "idle_training.py"


def rows() -> list[Row]:
    """Measure: about 40 s on two cores."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        jobs = [stack.enter_context(_training(launcher, folder)) for launcher in MODULES]
        for launcher, job in zip(MODULES, jobs, strict=True):
            _wait_for_workers(folder / f"{launcher}-workers", job.pid)
        time.sleep(1.0)  # the last worker's start is over
        before = [launcher_cpu(job.pid) for job in jobs]
        time.sleep(SECONDS)
        ours, peer = (launcher_cpu(job.pid) - used for job, used in zip(jobs, before, strict=True))
    return [
        Row(
            f"agent's own CPU, {WORKERS} workers, watching",
            f"{ours / SECONDS:.2%} of a core",
            f"{peer / SECONDS:.2%} (torchrun)",
            ours / peer,
            f"<= {BAR}x",
            ours <= BAR * peer,
        )
    ]


def _training(launcher: Launcher, folder: Path) -> AbstractContextManager[Job]:
    return launched(
        launcher, folder / launcher, ranks=WORKERS, script=[_WORKER, folder / f"{launcher}-workers"]
    )


def _wait_for_workers(folder: Path, launcher: int) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not folder.exists() or len(list(folder.iterdir())) < WORKERS:
        facts = proc.read_facts(launcher, now=time.monotonic())
        if time.monotonic() > deadline or facts is None or facts.state == "Z":
            raise RuntimeError(f"{WORKERS} training workers expected in {folder}")
        time.sleep(_LOOK)


def launcher_cpu(pid: int) -> float:
    """CPU seconds of a launcher and its helpers: whoever below it is no rank and no rank's child."""
    total, below = _cpu(pid), list(proc.children(pid))
    while below:
        child = below.pop()
        if "RANK" not in (proc.environ(child) or {}):
            total += _cpu(child)
            below += proc.children(child)
    return total


def _cpu(pid: int) -> float:
    """CPU seconds of all threads, from ``schedstat`` (nanoseconds; ``stat`` has ticks of 10 ms)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9
