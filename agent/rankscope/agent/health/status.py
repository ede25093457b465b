"""The status page: what the agent says about itself, in one memory-mapped file of its private folder.

The agent's threads write, the health server's process reads. No side ever waits for the other: the
server answers while the agent's interpreter is blocked, and the agent stamps while the server is busy.
This module knows nothing of HTTP and decides nothing.

Layout (little endian), sizes in bytes::

    0     header        magic "RSHS", version u32, created i64 (monotonic ns)
    64    main stamp    i64, monotonic ns: torch's monitor loop turned; 0 for never
    128   watch stamp   i64, monotonic ns: the watch thread turned; 0 for never
    192   phase cell    current u64; two slots of 256 at 256 and 512 (JSON)
    1024  status cell   current u64; two slots of 16 + 256 KiB at 4096 (JSON)
    (a cell and its slots: see ``cell``)
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from rankscope.agent.health.cell import SLOT_HEADER_SIZE, SeqCell
from rankscope.agent.health.model import (
    Check,
    CheckStatus,
    HealthStatus,
    PageView,
    Phase,
    PhaseRecord,
    Stamps,
    Suspicion,
    WorkerHealth,
)

__all__ = [
    "Check",
    "CheckStatus",
    "HealthStatus",
    "PageView",
    "Phase",
    "PhaseRecord",
    "Stamps",
    "StatusPageError",
    "StatusReader",
    "StatusWriter",
    "Suspicion",
    "WorkerHealth",
]

MAGIC: Final = b"RSHS"
VERSION: Final = 1
STATUS_LIMIT_BYTES: Final = 256 * 1024
_HEADER: Final = struct.Struct("<4sIq")
_STAMP: Final = struct.Struct("<q")
_MAIN_AT: Final = 64
_WATCH_AT: Final = 128
_PHASE_AT: Final = (192, 256, 256)
_STATUS_AT: Final = (1024, 4096, SLOT_HEADER_SIZE + STATUS_LIMIT_BYTES)
_PAGE_SIZE: Final = _STATUS_AT[1] + 2 * _STATUS_AT[2]


class StatusPageError(OSError):
    """The file is not a status page, or not one this version can read."""


class _Published(msgspec.Struct, frozen=True):
    published_ns: int
    status: HealthStatus


class StatusWriter:
    """The agent's end. Its methods never block and, after construction, never raise.

    ``stamp_main`` and ``stamp_watch`` belong to one thread each; the rest may be called from any thread.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Write an empty page beside ``path`` and rename it into place (mode 0600).

        Args:
            path: in a local folder that only the agent's user can enter.

        Raises:
            OSError: the folder cannot be written; the agent goes on without health.
        """
        self.path = Path(path).absolute()
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Written, not truncated to size: a hole on a full disk would give SIGBUS on a later write.
            empty = _HEADER.pack(MAGIC, VERSION, time.monotonic_ns()).ljust(_PAGE_SIZE, b"\0")
            if os.write(fd, empty) != _PAGE_SIZE:
                raise StatusPageError(f"{self.path}: no room for a status page")
            self._page = mmap.mmap(fd, _PAGE_SIZE)
            beside.replace(self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        self._lock = threading.Lock()
        self._phase = SeqCell(self._page, _PHASE_AT)
        self._status = SeqCell(self._page, _STATUS_AT)
        self.phase("starting", None)

    def stamp_main(self, now_ns: int) -> None:
        """Say that torch's monitor loop turned at ``now_ns`` (``time.monotonic_ns()``; 0.2 us)."""
        _STAMP.pack_into(self._page, _MAIN_AT, now_ns)

    def stamp_watch(self, now_ns: int) -> None:
        """Say that the watch thread turned at ``now_ns`` (``time.monotonic_ns()``; 0.2 us)."""
        _STAMP.pack_into(self._page, _WATCH_AT, now_ns)

    def phase(self, name: Phase, deadline: float | None) -> None:
        """Enter a phase.

        Args:
            name: the phase.
            deadline: ``time.monotonic()`` at which it is over at the latest; ``None`` when it has no end
                of its own and the stamps alone tell whether the agent lives.
        """
        with self._lock:
            self._phase.write(msgspec.json.encode(PhaseRecord(name, deadline)))

    def publish(self, status: HealthStatus) -> None:
        """Make ``status`` what the server answers from (3 us for 8 workers).

        A status that does not fit is published without its workers, with a check that says so.
        """
        with self._lock:
            data = _encode(status)
            if len(data) > STATUS_LIMIT_BYTES:
                data = _encode(_shortened(status, len(data)))
            self._status.write(data)

    def close(self) -> None:
        """Remove the file. The memory stays, so that a thread that still stamps does no harm."""
        self.path.unlink(missing_ok=True)


def _encode(status: HealthStatus) -> bytes:
    return msgspec.json.encode(_Published(time.monotonic_ns(), status))


def _shortened(status: HealthStatus, size_bytes: int) -> HealthStatus:
    reason = f"the status of {len(status.workers)} workers is too large ({size_bytes} bytes)"
    suspected = status.suspected and Suspicion(status.suspected.reason[:500], status.suspected.ranks[:500])
    checks = {"status": Check("warn", reason)}
    return msgspec.structs.replace(status, workers=(), suspected=suspected, checks=checks)


class StatusReader:
    """The server's end. Never blocks, never takes a lock; one calling thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map the page.

        Raises:
            OSError: no such page, or it is not one (``StatusPageError``).
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size < _PAGE_SIZE:
                raise StatusPageError(f"{os.fspath(path)}: too short for a status page")
            self._page = mmap.mmap(fd, _PAGE_SIZE, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        magic, version, self._created_ns = _HEADER.unpack_from(self._page, 0)
        if magic != MAGIC or version != VERSION:
            self._page.close()
            raise StatusPageError(f"{os.fspath(path)}: not a status page of version {VERSION}")
        self._phase = SeqCell(self._page, _PHASE_AT)
        self._status = SeqCell(self._page, _STATUS_AT)
        self._decoder = msgspec.json.Decoder(_Published)
        self._decoded: tuple[int, _Published | None] = (0, None)

    def read(self) -> PageView:
        """What the page says now. What cannot be read keeps the value it had."""
        published = self._read_status()
        return PageView(
            stamps=Stamps(
                main_ns=_STAMP.unpack_from(self._page, _MAIN_AT)[0],
                watch_ns=_STAMP.unpack_from(self._page, _WATCH_AT)[0],
                created_ns=self._created_ns,
            ),
            phase=self._read_phase(),
            status=published.status if published else None,
            published_ns=published.published_ns if published else self._created_ns,
        )

    def _read_status(self) -> _Published | None:
        if self._status.current() != self._decoded[0]:
            sequence, data = self._status.read()
            if sequence:
                self._decoded = (sequence, self._decoder.decode(data))
        return self._decoded[1]

    def _read_phase(self) -> PhaseRecord:
        sequence, data = self._phase.read()
        return msgspec.json.decode(data, type=PhaseRecord) if sequence else PhaseRecord()

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
