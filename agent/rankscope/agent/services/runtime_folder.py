"""The agent's private run-time folder: page, pipes and sockets lie here, not in the job folder.

They are memory-mapped or opened by training processes, and a write to a map on a lost share or a full disk
would stop the trainer (decision 0002). Mode 0700. The agent holds a lock in it, so that what a killed agent
left behind is found and removed by the next one; a pid would not do, containers share folders and not pids.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

_PREFIX: Final = "rankscope-agent-"
_LOCK: Final = "lock"
_MAKING_SECONDS: Final = 60.0
"""After which a folder that is still hidden is one whose maker was killed."""


class RuntimeFolder:
    """The folder, and the lock that says it is in use."""

    def __init__(self) -> None:
        """Make this agent's folder and remove those of agents that are gone.

        Raises:
            OSError: no folder could be made anywhere.
        """
        last: OSError | None = None
        for root in _roots():
            try:
                remove_abandoned(root)
                # Nobody sees it before it is locked: another agent would take the lock for an abandoned one.
                hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{os.getpid()}-", dir=root))
                self._lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                self.path = hidden.rename(hidden.with_name(hidden.name[1:]))
            except OSError as error:
                last = error
            else:
                return
        raise last or OSError("no run-time folder")

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _roots() -> list[Path]:
    """In order of preference: the user's run-time folder, shared memory, the temporary folder."""
    chosen = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(chosen)] if chosen else []
    candidates += [Path("/dev/shm"), Path(tempfile.gettempdir())]  # noqa: S108 - a private folder below
    return [path for path in candidates if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _MAKING_SECONDS
    except OSError:
        return False


def remove_abandoned(root: Path) -> None:
    """Remove the folders of this user's agents that no longer run."""
    begun = (path for path in root.glob(f".{_PREFIX}*") if _is_old(path))
    for path in (*root.glob(_PREFIX + "*"), *begun):
        try:
            is_ours = path.stat().st_uid == os.getuid()
            fd = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # somebody else's, or one that is being made just now
        try:
            if is_ours:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)
