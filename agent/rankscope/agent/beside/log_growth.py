"""How much a job's log files have grown, whatever is done to them meanwhile. Pure: sizes in, totals out.

A file is its device and inode: a log that is renamed and begun anew (logrotate), cut to nothing
(``copytruncate``) or that appears later never makes a total fall, and never counts twice. It must not know of
paths' contents, clocks or processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

_PACKED: Final = frozenset({".gz", ".zst", ".xz", ".bz2", ".zip"})
NO_RANK: Final = -1
"""Whose output a file is that names no rank."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file as the file system describes it.

    Attributes:
        path: where it is just now.
        device: with inode its identity.
        size_bytes: its size; modified_ns when it was last written, unix time.
    """

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def rank_in_path(path: str) -> int:
    """The rank that a log file's path names (``rank3``, ``worker_3``, torch's layout), else ``NO_RANK``."""
    from rankscope.diag.dumps.names import read_name

    rank = read_name(PurePath(path).parts).rank
    return NO_RANK if rank is None else rank


def is_packed(path: str) -> bool:
    """Whether a file is an old log that somebody compressed: it is no output of the job."""
    return PurePath(path).suffix.lower() in _PACKED


class LogGrowth:
    """Totals of what was written since the first look.

    Attributes:
        bytes_by_rank: by the rank that a file's name gives; an overwritten file of the same size counts one.
        files: number of files at the last look.
    """

    def __init__(self) -> None:
        self.bytes_by_rank: Mapping[int, int] = {}
        self.files = 0
        self._known: dict[tuple[int, int], LogFile] = {}
        self._began = False

    def update(self, files: Iterable[LogFile]) -> None:
        """Take in the files as they are now; those of the first call are where counting starts."""
        totals = dict(self.bytes_by_rank)
        count = 0
        for file in files:
            if is_packed(file.path):
                continue
            count += 1
            key = (file.device, file.inode)
            before, self._known[key] = self._known.get(key), file
            grown = _grown(before, file) if self._began else 0
            if grown:
                rank = rank_in_path(file.path)
                totals[rank] = totals.get(rank, 0) + grown
        # A new mapping: another thread reads the old one meanwhile.
        self.bytes_by_rank, self.files, self._began = totals, count, True


def _grown(before: LogFile | None, now: LogFile) -> int:
    if before is None:
        return now.size_bytes
    if now.size_bytes > before.size_bytes:
        return now.size_bytes - before.size_bytes
    if now.size_bytes < before.size_bytes:
        # Cut, and perhaps written to since: cutting alone is nobody's output.
        return now.size_bytes
    return int(now.modified_ns > before.modified_ns and now.size_bytes > 0)
