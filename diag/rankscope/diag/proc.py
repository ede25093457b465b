"""``/proc`` of a process, its threads and its children: plain file reads, 20-40 us a process.

This module says what the kernel knows and nothing more: it never traces, never signals, never waits,
and must not know of ranks or tools. A process is its pid *and* its start time: whoever keeps a pid
keeps ``start_ticks`` beside it and compares before use. Everything here answers ``None`` (or zero, where
the value is a counter that may be forbidden) instead of raising: a process may end between two reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.model import ProcessFacts
from rankscope.diag.proc_files import LONG_BYTES, read_all, read_file, split_stat, status_number

_TICK_SECONDS: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_BOOT_UNIX: Final = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NANO: Final = 1e-9
_ASLEEP: Final = frozenset("SD")
_SIGSTOP_BIT: Final = 1 << 18
_MOST_ANCESTORS: Final = 64


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process in the process table.

    Attributes:
        parent: pid of its parent, 0 for none.
        start_ticks: when it started, clock ticks since boot (``stat`` field 22).
        state: kernel state letter.
        comm: the kernel's name of it, at most 15 characters.
    """

    pid: int
    parent: int
    start_ticks: int
    state: str
    comm: str


@dataclass(frozen=True, slots=True)
class Access:
    """What decides how a process may be looked at.

    Attributes:
        may_trace: whether the kernel lets this process read the other's memory (``ptrace`` attach
            rights), ``None`` when that could not be found out.
        same_user: whether it runs under our user.
        traced_by: pid of the tracer (gdb, strace, py-spy), 0 for none.
        blocked_threads: threads that a tracer would wait for in vain: state D, T or t.
        stopped: whether a thread is stopped, or will be as soon as it wakes (SIGSTOP pending).
    """

    may_trace: bool | None
    same_user: bool
    traced_by: int
    blocked_threads: int
    stopped: bool


def read_facts(pid: int, *, now: float) -> ProcessFacts | None:
    """Read the facts of a process and of its main thread.

    The main thread's CPU time is taken from ``schedstat`` (nanoseconds; ``stat`` has ticks of 10 ms) where
    the kernel has it. What this process may not read (I/O, wchan of another user) is 0 or ``None``.

    Args:
        pid: process to look at.
        now: ``time.monotonic()`` of the reading.

    Returns:
        The facts, or ``None`` when there is no such process.
    """
    stat = read_file(f"/proc/{pid}/stat")
    split = split_stat(stat)
    if split is None:
        return None
    comm, fields = split
    main = f"/proc/{pid}/task/{pid}/"
    state = fields[0].decode()
    total = (int(fields[11]) + int(fields[12])) * _TICK_SECONDS
    main_cpu, run_delay = _main_cpu(main)
    status = read_file(main + "status", LONG_BYTES)
    start_ticks = int(fields[19])
    return ProcessFacts(
        pid=pid,
        start_ticks=start_ticks,
        parent=int(fields[1]),
        time=now,
        state=state,
        comm=comm,
        wchan=_wchan(main, state),
        main_cpu_seconds=main_cpu,
        main_run_delay_seconds=run_delay,
        other_cpu_seconds=max(0.0, total - main_cpu),
        voluntary_switches=status_number(status, b"\nvoluntary_ctxt_switches:"),
        io_bytes=_io_bytes(read_file(main + "io")),
        minor_faults=int(fields[7]),
        thread_count=int(fields[17]),
        started=_BOOT_UNIX + start_ticks * _TICK_SECONDS,
    )


def io_bytes(pid: int) -> int:
    """Characters that the main thread has read and written, 0 when that cannot be read."""
    return _io_bytes(read_file(f"/proc/{pid}/task/{pid}/io"))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM (``statm``), 0 when there is no such process."""
    fields = (read_file(f"/proc/{pid}/statm") or b"").split(maxsplit=2)
    return int(fields[1]) * _PAGE_BYTES if len(fields) >= 2 else 0  # noqa: PLR2004 - size, resident


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, ``None`` when there is no such process."""
    split = split_stat(read_file(f"/proc/{pid}/stat"))
    return None if split is None else int(split[1][19])


def environ(pid: int) -> dict[str, str] | None:
    """The environment a process was started with, ``None`` when it cannot be read.

    What a process sets in itself later is not in here, and a program that rewrites its title
    (``setproctitle``) may have overwritten it.
    """
    data = read_all(f"/proc/{pid}/environ")
    if data is None:
        return None
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals}


def command_line(pid: int) -> tuple[str, ...]:
    """Program and arguments of a process, empty when they cannot be read (a zombie's, a kernel thread's)."""
    data = read_all(f"/proc/{pid}/cmdline") or b""
    return tuple(os.fsdecode(argument) for argument in data.removesuffix(b"\0").split(b"\0") if data)


def process_table() -> dict[int, ProcessEntry]:
    """All processes that this one can see, by pid, in one pass (25 us a process)."""
    entries = (_entry(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - hot path
    return {entry.pid: entry for entry in entries if entry is not None}


def children(pid: int, *, table: Mapping[int, ProcessEntry] | None = None) -> tuple[int, ...]:
    """Direct children of a process, oldest pid first.

    Args:
        pid: the parent.
        table: answer from this process table, else from ``/proc/<pid>/task/*/children`` (kernels without
            that file: from a fresh table).
    """
    if table is None:
        listed = _listed_children(pid)
        if listed is not None:
            return tuple(sorted(listed))
        table = process_table()
    return tuple(sorted(entry.pid for entry in table.values() if entry.parent == pid))


def descendants(
    pid: int,
    *,
    table: Mapping[int, ProcessEntry] | None = None,
    without: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """Children, their children and so on, nearest first.

    Args:
        pid: the ancestor; it is not in the answer.
        table: process table to answer from (better for many ancestors), else the kernel's lists.
        without: processes that are left out together with what is below them.
    """
    below = children if table is None else _index(table)
    found: list[int] = []
    seen = {pid, *without}
    level = [pid]
    while level:
        level = sorted({child for parent in level for child in below(parent)} - seen)
        seen.update(level)
        found += level
    return tuple(found)


def descends_from(pid: int, ancestors: Collection[int]) -> bool:
    """Whether a process is one of ``ancestors``, or a child of one through any number of others."""
    for _ in range(_MOST_ANCESTORS):
        if pid in ancestors:
            return True
        entry = _entry(pid)
        if entry is None or entry.parent <= 1:
            return False
        pid = entry.parent
    return False


def read_access(pid: int) -> Access:
    """Find out how a process may be looked at, before a tool with misleading error texts tries."""
    statuses = {thread_id: status for thread_id, status in _thread_statuses(pid) if status is not None}
    standings = [_standing(status) for status in statuses.values()]
    status = statuses.get(pid)
    return Access(
        may_trace=_may_trace(pid),
        # Not the owner of /proc/<pid>: that is root for a process that is not dumpable.
        same_user=status is None or status_number(status, b"\nUid:") == os.geteuid(),
        traced_by=status_number(status, b"\nTracerPid:"),
        blocked_threads=sum(state in "DTt" for state, _pending in standings),
        stopped=any(state == "T" or pending & _SIGSTOP_BIT for state, pending in standings),
    )


def tracer_name(pid: int) -> str | None:
    """The kernel's name of the process that traces another one, ``None`` when nobody does."""
    tracer = status_number(read_file(f"/proc/{pid}/status", LONG_BYTES), b"\nTracerPid:")
    entry = _entry(tracer) if tracer else None
    return entry.comm if entry is not None else None


def is_python(pid: int) -> bool | None:
    """Whether a process runs Python, from its executable's name or ``libpython``; ``None``: cannot tell.

    A program that has Python linked in statically under another name is not recognised.
    """
    try:
        executable = Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None
    if executable.name.startswith(("python", "pypy")):
        return True
    maps = read_all(f"/proc/{pid}/maps")
    return None if maps is None else b"libpython" in maps


def maps_library(pid: int, name: str) -> bool:
    """Whether a file whose path contains ``name`` is mapped into the process (False when unreadable)."""
    maps = read_all(f"/proc/{pid}/maps")
    return maps is not None and os.fsencode(name) in maps


def _entry(pid: int) -> ProcessEntry | None:
    split = split_stat(read_file(f"/proc/{pid}/stat"))
    if split is None:
        return None
    comm, fields = split
    return ProcessEntry(pid, int(fields[1]), int(fields[19]), fields[0].decode(), comm)


def _main_cpu(main: str) -> tuple[float, float]:
    schedstat = (read_file(main + "schedstat") or b"").split()
    if len(schedstat) >= 2:  # noqa: PLR2004 - on-CPU time and run delay, nanoseconds
        return int(schedstat[0]) * _NANO, int(schedstat[1]) * _NANO
    split = split_stat(read_file(main + "stat"))
    if split is None:
        return 0.0, 0.0
    return (int(split[1][11]) + int(split[1][12])) * _TICK_SECONDS, 0.0


def _wchan(main: str, state: str) -> str | None:
    data = read_file(main + "wchan")
    if data is None:
        return None
    if data in {b"0", b""}:
        # The kernel writes 0 for a running thread, and to those who may not know where one sleeps.
        return None if state in _ASLEEP else ""
    return data.decode("ascii", "replace")


def _io_bytes(data: bytes | None) -> int:
    fields = (data or b"").split(maxsplit=4)
    return int(fields[1]) + int(fields[3]) if len(fields) >= 4 else 0  # noqa: PLR2004 - rchar: N wchar: N


def _thread_ids(pid: int) -> list[int] | None:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - hot path
    except OSError:
        return None


def _thread_statuses(pid: int) -> Iterator[tuple[int, bytes | None]]:
    for thread_id in _thread_ids(pid) or ():
        yield thread_id, read_file(f"/proc/{pid}/task/{thread_id}/status", LONG_BYTES)


def _standing(status: bytes) -> tuple[str, int]:
    """State letter and pending signals of a thread."""
    at = status.find(b"\nState:\t") + 8
    pending = status_number(status, b"\nSigPnd:", 16) | status_number(status, b"\nShdPnd:", 16)
    return status[at : at + 1].decode("ascii", "replace"), pending


def _index(table: Mapping[int, ProcessEntry]) -> Callable[[int], Sequence[int]]:
    by_parent: dict[int, list[int]] = {}
    for entry in table.values():
        by_parent.setdefault(entry.parent, []).append(entry.pid)
    return lambda parent: by_parent.get(parent, ())


def _listed_children(pid: int) -> set[int] | None:
    """Children by the kernel's lists, one a thread; ``None`` on kernels without them."""
    found: set[int] = set()
    for thread_id in _thread_ids(pid) or ():
        data = read_file(f"/proc/{pid}/task/{thread_id}/children", LONG_BYTES)
        if data is None:
            if Path(f"/proc/{pid}/task/{thread_id}").exists():
                return None
            continue
        found.update(int(child) for child in data.split())
    return found


def _may_trace(pid: int) -> bool | None:
    """Opening ``mem`` is checked by the kernel exactly as a ptrace attach is (``proc_mem_open``)."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return None
    return True
