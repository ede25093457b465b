"""The agent's private run-time folder: page, pipes and sockets lie here, not in the job folder.

They are memory-mapped or opened by training processes, and a write to a map on a lost share or a full disk
would stop the trainer (decision 0002). Mode 0700, named after the agent's process so that what a killed
agent left behind is found and removed by the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from rankscope.diag import proc

_PREFIX: Final = "rankscope-agent-"


def create_runtime_folder() -> Path:
    """Make this agent's folder and remove those of agents that are gone.

    Raises:
        OSError: no folder could be made anywhere.
    """
    pid = os.getpid()
    name = f"{_PREFIX}{pid}-{proc.start_ticks(pid) or 0}-"
    last: OSError | None = None
    for root in _roots():
        try:
            remove_abandoned(root)
            return Path(tempfile.mkdtemp(prefix=name, dir=root))
        except OSError as error:
            last = error
    raise last or OSError("no run-time folder")


def _roots() -> list[Path]:
    """In order of preference: the user's run-time folder, shared memory, the temporary folder."""
    chosen = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(chosen)] if chosen else []
    candidates += [Path("/dev/shm"), Path(tempfile.gettempdir())]  # noqa: S108 - a private folder below
    return [path for path in candidates if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]


def remove_abandoned(root: Path) -> None:
    """Remove the folders of this user's agents that no longer run."""
    for path in root.glob(_PREFIX + "*"):
        parts = path.name[len(_PREFIX) :].split("-")
        try:
            pid, ticks = int(parts[0]), int(parts[1])
            is_ours = path.stat().st_uid == os.getuid()
        except (ValueError, IndexError, OSError):
            continue
        if is_ours and proc.start_ticks(pid) != ticks:
            shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove the folder and everything in it."""
    shutil.rmtree(path, ignore_errors=True)
