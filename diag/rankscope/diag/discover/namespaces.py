"""A process in a container, seen from outside: what it calls itself, and where its files lie for us.

In a pid namespace of its own a process knows itself by another number than we do, and in a mount namespace
of its own a path leads somewhere else. Both stand in ``/proc``; it must not know what the numbers are for.
"""

from __future__ import annotations

from pathlib import Path

from rankscope.diag.proc_files import LONG_BYTES, read_file


def own_number(pid: int) -> int:
    """The pid by which a process knows itself: the innermost of its ``NSpid`` (Linux 4.1)."""
    return innermost(read_file(f"/proc/{pid}/status", LONG_BYTES) or b"") or pid


def innermost(status: bytes) -> int:
    """The last number of ``NSpid``, 0 without it."""
    _before, name, rest = status.partition(b"\nNSpid:")
    numbers = rest.split(b"\n", 1)[0].split() if name else []
    return int(numbers[-1]) if numbers else 0


def beyond_root(pid: int, path: str) -> str:
    """A path that a process names, as it is reached from here.

    The path itself when the process sees the same file system or may not be asked.
    """
    root = Path(f"/proc/{pid}/root")
    try:
        theirs, ours = root.stat(), Path("/").stat()
    except OSError:
        return path
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
        return path
    return f"{root}{path}" if path.startswith("/") else path
