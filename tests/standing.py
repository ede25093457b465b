"""A process that is made to stand still, as ``kill -STOP`` does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.deadline import DEADLINE


def stand_still(pid: int) -> None:
    """Stop a process and return once all its threads stand: on a busy host they run on for a while."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + DEADLINE
    while any(_state(task) not in "TZX" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < end, f"process {pid} runs on"
        time.sleep(0.005)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
