"""Reads the end of a log file: a bounded number of bytes, whatever the file's size, and never what may block.

Only regular files are read (no pipe, terminal or device). Where a file has just been rotated, by renaming or
by copying and truncating, what came before is at the end of its newest neighbours (``<name>.1``,
``<name>-20261130``), which are read as well. It must not know what a log says.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from pathlib import Path
from typing import Final

SHORT_BYTES: Final = 256 * 1024
"""Enough for a traceback and what a job prints after it."""
LONG_BYTES: Final = 4 * 1024 * 1024
"""How far back one goes at most: 100,000 lines of noise behind an error."""
_MOST_NEIGHBOURS: Final = 4_096
_MOST_READ: Final = 8
_ROTATED: Final = re.compile(r"[.-](?:\d{1,2}|\d{8}(?:[-.T_]?\d{4,6})?(?:[-.]\d{1,4})?|old|bak)\Z")
_HOLES: Final = re.compile(rb"\x00+")
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")


def read_tail(path: str | os.PathLike[str], *, size_bytes: int = SHORT_BYTES) -> str:
    """The end of a log, rotated or not.

    Args:
        path: of the file that is, or was, written to; it may be missing.
        size_bytes: at most so much is read.

    Returns:
        Text that begins with a whole line; bytes that are no UTF-8 become U+FFFD, NULs are left out (a file
        that was truncated under its writer begins with a hole). ``""`` for what cannot be read.
    """
    name = os.fspath(path)
    if not name:
        return ""
    data = _end_of(name, size_bytes) or b""
    if len(data) < size_bytes:
        for before in _before_rotation(name):
            # Rotation cuts between two writes, or within a line: then the rest stands in the newer file.
            data = (_end_of(before, size_bytes - len(data)) or b"") + data
            if len(data) >= size_bytes:
                break
    return _whole_lines(data, is_cut=len(data) >= size_bytes).decode("utf-8", "replace")


def _end_of(name: str, size_bytes: int) -> bytes | None:
    """The last bytes of a regular file, ``None`` when it is none or cannot be read."""
    try:
        # Opening a FIFO or a device to look at it must not wait for anybody.
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        return _read_at(fd, max(0, found.st_size - size_bytes), size_bytes)
    except OSError:
        return None
    finally:
        os.close(fd)


def _read_at(fd: int, offset: int, size_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = size_bytes
    while left > 0 and (piece := os.pread(fd, left, offset)):
        pieces.append(piece)
        offset += len(piece)
        left -= len(piece)
    return _HOLES.sub(b"", b"".join(pieces))


def _before_rotation(name: str) -> list[str]:
    """The rotated neighbours of a file, newest first, as far back as they can be read."""
    folder, base = os.path.split(name)
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(folder or ".") as entries:
            for _, entry in zip(range(_MOST_NEIGHBOURS), entries, strict=False):
                rest = entry.name[len(base) :] if entry.name.startswith(base) else ""
                if rest and _ROTATED.match(rest) and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    except (OSError, ValueError):
        return []
    newest = (path for _, path in sorted(found, reverse=True)[:_MOST_READ])
    return list(itertools.takewhile(lambda path: not _is_compressed(path), newest))


def _is_compressed(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return file.read(6).startswith(_COMPRESSED)
    except OSError:
        return True


def _whole_lines(data: bytes, *, is_cut: bool) -> bytes:
    if not is_cut:
        return data
    first, newline, rest = data.partition(b"\n")
    return rest if newline else first
