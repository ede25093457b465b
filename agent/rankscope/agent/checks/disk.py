"""Whether there is room for the records, and whether their file system takes them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.agent.health.model import Check

NAME: Final = "disk:records"
LITTLE_BYTES: Final = 1 << 30
NONE_BYTES: Final = 64 << 20
LITTLE_FILES: Final = 1000
_TRIED: Final = b"\0" * 4096
_NO_NAMELESS: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
"""What a file system says that has no files without a name (NFS), and a kernel before 3.11."""
_FULL: Final = frozenset(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system says.

    Attributes:
        free_bytes: for us; free_files likewise, ``None`` where none are counted.
        trouble: why nothing can be written, ``""`` when it can.
    """

    free_bytes: int = 0
    free_files: int | None = None
    trouble: str = ""


def look(folder: Path) -> Room:
    """Ask the file system of a folder, or of what there is of its path; may block on a lost share."""
    there = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    try:
        said = os.statvfs(there)
        _try(there)
    except OSError as error:
        return Room(trouble=error.strerror or str(error))
    return Room(said.f_bavail * said.f_frsize, said.f_favail if said.f_files else None)


def _try(folder: Path) -> None:
    """Write a page of a file that has no name and is gone at once: quotas are seen by this alone.

    Raises:
        OSError: nothing can be written.
    """
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error
        return
    try:
        os.write(fd, _TRIED)
    finally:
        os.close(fd)


def judge_room(room: Room) -> Check:
    """What that means for the records."""
    if room.trouble:
        mend = "make room" if room.trouble in _FULL else "mend that"
        return Check("warn", f"records cannot be written: {room.trouble}; {mend} or set RANKSCOPE_HOME")
    free = f"{room.free_bytes / (1 << 30):.1f} GiB free"
    if room.free_bytes < NONE_BYTES:
        return Check(
            "warn", f"{room.free_bytes >> 20} MiB free: make room (diag prune), or set RANKSCOPE_HOME"
        )
    if room.free_files is not None and room.free_files < LITTLE_FILES:
        return Check("warn", f"{free}, room for {room.free_files} files: make room (diag prune)")
    if room.free_bytes < LITTLE_BYTES:
        return Check("warn", f"{free}: make room (diag prune), or set RANKSCOPE_HOME")
    return Check("pass", free)
