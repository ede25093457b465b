"""Puts the text of the user's lines into the frames of a snapshot, so that it explains itself elsewhere.

Only lines of the user's own code are read: of the interpreter and installed packages the reader has copies
of his own. The file is looked for where the process sees it (its root, its working folder) first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from rankscope.diag.classify import Catalogue
from rankscope.diag.model import ChildSnapshot, Frame, JobSnapshot, RankSnapshot, ThreadStack

_LONGEST_LINE: Final = 500  # characters
_MOST_BYTES: Final = 4 << 20  # of one source file


class SourceReader:
    """Lines of source files, each file read once for all ranks that see it at the same path."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], list[str] | None] = {}

    def line(self, frame: Frame, pid: int) -> str:
        """The text of a frame's line, ``""`` when no file can be read."""
        for path in _places(frame.file, pid):
            lines = self._lines(path)
            if lines is not None:
                return lines[frame.line - 1].strip()[:_LONGEST_LINE] if 0 < frame.line <= len(lines) else ""
        return ""

    def _lines(self, path: str) -> list[str] | None:
        try:
            # Not blocking: in the mount namespace of the process anything may lie at that path.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            key = (found.st_dev, found.st_ino)
            if key not in self._files:
                is_file = stat.S_ISREG(found.st_mode)
                self._files[key] = _text(file) if is_file else None
            return self._files[key]


def with_sources(snapshot: JobSnapshot, *, catalogue: Catalogue, reader: SourceReader) -> JobSnapshot:
    """The snapshot with the text of every line of the user's own code that can be read here."""
    ranks = tuple(_rank(rank, catalogue, reader) for rank in snapshot.ranks)
    return msgspec.structs.replace(snapshot, ranks=ranks)


def _rank(rank: RankSnapshot, catalogue: Catalogue, reader: SourceReader) -> RankSnapshot:
    return msgspec.structs.replace(
        rank,
        threads=_threads(rank.threads, rank.pid, catalogue, reader),
        children=tuple(_child(child, catalogue, reader) for child in rank.children),
    )


def _child(child: ChildSnapshot, catalogue: Catalogue, reader: SourceReader) -> ChildSnapshot:
    return msgspec.structs.replace(child, threads=_threads(child.threads, child.pid, catalogue, reader))


def _threads(
    threads: tuple[ThreadStack, ...], pid: int, catalogue: Catalogue, reader: SourceReader
) -> tuple[ThreadStack, ...]:
    def filled(frame: Frame) -> Frame:
        if frame.source or frame.kind != "python" or not catalogue.is_user_code(frame):
            return frame
        text = reader.line(frame, pid)
        return msgspec.structs.replace(frame, source=text) if text else frame

    return tuple(
        msgspec.structs.replace(thread, frames=tuple(map(filled, thread.frames))) for thread in threads
    )


def _places(file: str, pid: int) -> Iterator[str]:
    """Where the file may lie: as the process sees it, then as we do."""
    if not file or file.startswith("<"):
        return
    if file.startswith("/"):
        if pid:
            yield f"/proc/{pid}/root{file}"
        yield file
    elif pid:
        yield f"/proc/{pid}/cwd/{file}"


def _text(file: BinaryIO) -> list[str] | None:
    try:
        return file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
