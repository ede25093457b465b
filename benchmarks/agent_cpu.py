"""Row about the agent's own CPU (NUMBERS.md): eight workers that train, watched, against plain torchrun.

Both launchers run side by side and are measured over the same seconds: CPU time of the agent and of all its
helper processes, the workers left out. The workers make optimizer steps of 100 ms without collectives, so
that two cores carry all of them (programs/idle_training.py).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

from tests.jobs import diag_run

from benchmarks.row import Row
from rankscope.diag import proc

WORKERS: Final = 8
SECONDS: Final = 10.0
BAR: Final = 1.5
_STEP_TIME: Final = 0.1
_DEADLINE: Final = 120.0
_LOOK: Final = 0.2
_WORKER: Final = str(Path(__file__).parent / "programs" / "idle_training.py")


def rows() -> list[Row]:
    """Measure: about 40 s on two cores."""
    with tempfile.TemporaryDirectory() as folder, _torchrun(Path(folder)) as peer_pid:
        script = [_WORKER, f"{folder}/ours"]
        with diag_run(Path(folder) / "job", ranks=WORKERS, script=script) as job:
            _wait_for_workers(Path(folder) / "ours", job.pid)
            _wait_for_workers(Path(folder) / "peer", peer_pid)
            time.sleep(1.0)  # the last worker's start is over
            before = _launcher_cpu(job.pid), _launcher_cpu(peer_pid)
            time.sleep(SECONDS)
            ours, peer = _launcher_cpu(job.pid) - before[0], _launcher_cpu(peer_pid) - before[1]
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


@contextlib.contextmanager
def _torchrun(folder: Path) -> Generator[int]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORKERS}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*command, "--master-port=0", _WORKER, str(folder / "peer")], stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(_DEADLINE)


def _wait_for_workers(folder: Path, launcher: int) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not folder.exists() or len(list(folder.iterdir())) < WORKERS:
        facts = proc.read_facts(launcher, now=time.monotonic())
        if time.monotonic() > deadline or facts is None or facts.state == "Z":
            raise RuntimeError(f"{WORKERS} training workers expected in {folder}")
        time.sleep(_LOOK)


def _launcher_cpu(pid: int) -> float:
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
