"""The counters of one process, read again and again through descriptors that are kept open.

Opening is two thirds of what a file under ``/proc`` costs, and a descriptor can only ever mean the process it
was opened for: a reused pid reads as gone. It must not know of ranks or limits. ``diag.proc`` reads the same
files once, and more of them.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from rankscope.diag.proc_files import split_stat, status_number

_TICK_SECONDS: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_NANO: Final = 1e-9
_STAT_BYTES: Final = 1024
_STATUS_BYTES: Final = 1 << 16
"""``status`` lists all of a user's groups before the field that is wanted."""
_SMALL_BYTES: Final = 256


class Counters(NamedTuple):
    """What the detector compares; units and sources as in ``diag.proc.read_facts``.

    Attributes:
        start_ticks: when the process started (``stat`` field 22).
        state: kernel state letter of the main thread.
        cpu_seconds: of the main thread, run delay included, which is run_delay_seconds; other_cpu_seconds of
            its other threads.
        switches: voluntary context switches of the main thread; io_bytes what it read and wrote.
    """

    start_ticks: int
    state: str
    cpu_seconds: float
    run_delay_seconds: float
    other_cpu_seconds: float
    switches: int
    io_bytes: int


class ProcessCounters:
    """Four descriptors of one process, for one thread; the owner closes them."""

    def __init__(self, pid: int) -> None:
        """Open what can be opened; a process that is gone reads as ``None`` from the start."""
        main = f"/proc/{pid}/task/{pid}/"
        self._stat = _open(f"/proc/{pid}/stat")
        self._schedstat = _open(f"{main}schedstat")
        self._status = _open(f"{main}status")
        self._io = _open(f"{main}io")

    def read(self) -> Counters | None:
        """The counters now, ``None`` once the process has been reaped."""
        split = split_stat(_pread(self._stat, _STAT_BYTES))
        if split is None:
            return None
        fields = split[1]
        on_cpu, delay = self._main_cpu()
        total = (int(fields[11]) + int(fields[12])) * _TICK_SECONDS
        status = _pread(self._status, _STATUS_BYTES)
        return Counters(
            start_ticks=int(fields[19]),
            state=fields[0].decode(),
            cpu_seconds=on_cpu + delay,
            run_delay_seconds=delay,
            other_cpu_seconds=max(0.0, total - on_cpu),
            switches=status_number(status, b"\nvoluntary_ctxt_switches:"),
            io_bytes=self._io_bytes(),
        )

    def close(self) -> None:
        """Close all of them."""
        for fd in (self._stat, self._schedstat, self._status, self._io):
            if fd >= 0:
                os.close(fd)
        self._stat = self._schedstat = self._status = self._io = -1

    def _main_cpu(self) -> tuple[float, float]:
        """Time on CPU and run delay of the main thread; zero on kernels without ``schedstat``."""
        fields = (_pread(self._schedstat, _SMALL_BYTES) or b"").split()
        return (int(fields[0]) * _NANO, int(fields[1]) * _NANO) if len(fields) > 1 else (0.0, 0.0)

    def _io_bytes(self) -> int:
        fields = (_pread(self._io, _SMALL_BYTES) or b"").split(maxsplit=4)
        return int(fields[1]) + int(fields[3]) if len(fields) > 3 else 0  # noqa: PLR2004 - rchar: N wchar: N


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _pread(fd: int, size_bytes: int) -> bytes | None:
    """What the kernel says now; nothing when it is gone or was never to be had."""
    try:
        return os.pread(fd, size_bytes, 0) or None
    except OSError:
        return None
