"""Stacks from the worker itself: the signal is sent, its probe's handler writes, the file is read.

For processes that nobody may trace. Before the signal goes out everything is seen to: the worker's word
that it answers, the handler's bit in the kernel's list, the descriptor where it can be seen; a process
without a handler would die of the signal. When the handler has returned is seen by the signal being
blocked while it runs. Nothing here decides whether this is the way to look (``plan``).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import re
import signal
import stat
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag import proc
from rankscope.diag.capture.plan import Readiness
from rankscope.diag.discover.namespaces import beyond_root, own_number
from rankscope.diag.model import ThreadStack
from rankscope.diag.proc_files import LONG_BYTES, read_file, status_number
from rankscope.diag.read.stream import read_contents
from rankscope.watchdog import environment
from rankscope.watchdog.answers import DUMP_SIGNAL, Answer, answer_file, read_answer, stacks_file

_BIT: Final = 1 << (DUMP_SIGNAL - 1)
_POLL_SECONDS: Final = 0.001
_DUMP_SECONDS: Final = 2.0
_MOST_BYTES: Final = 1 << 24
_TGKILL: Final = {"x86_64": 234, "aarch64": 131}
_ROOTS: Final = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108 - private folders below
_AGENTS: Final = "rankscope-agent-"
"""Where agents' run-time folders lie, and how their names begin (``agent.runtime``)."""
_HEADER: Final = re.compile(rb"^(?:Current thread|Thread) 0x([0-9a-fA-F]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answering:
    """A process that answers the signal.

    Attributes:
        pid: the process; host's number.
        start_ticks: its start time.
        stacks: path of the file it writes to.
        answer: what its probe, or that of the rank it was forked from, says.
        readiness: who in it takes the signal.
    """

    pid: int
    start_ticks: int
    stacks: str
    answer: Answer
    readiness: Readiness


def find_answering(
    pid: int, start_ticks: int, *, folders: Sequence[str], forked_from: int = 0
) -> Answering | None:
    """See whether a process answers the signal.

    Args:
        pid: the process.
        start_ticks: its start time.
        folders: private folders to look in (``Folders.of``).
        forked_from: the rank whose child it is: a forked one has the rank's handler, file and descriptor.
    """
    if not folders:
        return None
    status = read_file(f"/proc/{pid}/status", LONG_BYTES)
    if status is None or not status_number(status, b"\nSigCgt:", 16) & _BIT:
        return None
    owner = forked_from or pid
    owner_ticks = proc.start_ticks(owner) if forked_from else start_ticks
    inside = own_number(owner)
    for folder in folders:
        text = read_file(answer_file(folder, inside))
        answer = read_answer(text.decode("ascii", "replace")) if text else None
        if answer is None or answer.start_ticks != owner_ticks:
            continue
        stacks = stacks_file(folder, inside)
        if _holds(pid, answer.fd, stacks):
            by_thread = not forked_from and inside == pid and _may_take(pid, answer.thread_id)
            by_process = by_thread or _may_take(pid, pid)
            return Answering(pid, start_ticks, stacks, answer, Readiness(by_process, by_thread))
    return None


class Folders:
    """Where the workers' answers lie; all agents' folders are looked for once, and only if they must be."""

    def __init__(self) -> None:
        self._all: tuple[tuple[str, int], ...] | None = None

    def of(self, pid: int, named: str, environ: Mapping[str, str] | None) -> tuple[str, ...]:
        """Folders to look in.

        Args:
            pid: the worker.
            named: what the agent knows, ``""`` otherwise.
            environ: the worker's environment, ``None`` when it cannot be read.

        Returns:
            The folder that is named; those of all agents of this host for a worker whose environment is
            closed to us, as it is when it may not be traced, and for one that got its variables after it
            was started.
        """
        folder = (environ or {}).get(environment.ANSWERS, "")
        if named or folder:
            return (named or beyond_root(pid, folder),)
        if self._all is None:
            owned = ((path, _private_owner(path)) for path in _agents_folders())
            self._all = tuple((path, owner) for path, owner in owned if owner is not None)
        owners = _owners(pid) if self._all else frozenset[int]()
        return tuple(path for path, owner in self._all if owner in owners)


def _agents_folders() -> Iterator[str]:
    for root in filter(None, _ROOTS):
        with contextlib.suppress(OSError):
            names = os.listdir(root)  # noqa: PTH208 - hot path
            yield from (f"{root}/{name}/answers" for name in names if name.startswith(_AGENTS))


def _private_owner(folder: str) -> int | None:
    """Who a private folder belongs to, ``None`` when others may write there: anybody may make such names."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        if stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022:
            return found.st_uid
    return None


def _owners(pid: int) -> frozenset[int]:
    """Users whose files a process may be asked through: its own and ours (it may have changed its user)."""
    status = read_file(f"/proc/{pid}/status", LONG_BYTES)
    return frozenset({os.geteuid(), *([] if status is None else [status_number(status, b"\nUid:")])})


def ask_stacks(
    answering: Answering, *, to_thread: bool, deadline: float
) -> tuple[tuple[ThreadStack, ...], str, int]:
    """Have the process dump its stacks.

    Args:
        answering: the process, just found.
        to_thread: send the signal to the probe's thread instead of the process.
        deadline: ``time.monotonic()`` after which it is not waited for any longer.

    Returns:
        The threads, why there are none, and how many bytes the process wrote.
    """
    limit = min(deadline, time.monotonic() + _DUMP_SECONDS)
    try:
        with _taken(answering.stacks, deadline=limit) as fd:
            if fd < 0:
                return (), "its stacks are being asked for by somebody else", 0
            if not _is_its_own(fd, answering.pid):
                return (), "the file for its stacks is not its own", 0
            os.ftruncate(fd, 0)
            takers = _takers(answering.pid)
            if not _send(answering, to_thread=to_thread):
                return (), "the process ended before it was asked for its stacks", 0
            _wait(answering.pid, takers, fd, deadline=limit)
            text = os.pread(fd, _MOST_BYTES, 0)
            os.ftruncate(fd, 0)
    except OSError as error:
        return (), f"faulthandler: {error.strerror or error}", 0
    if not text:
        return (), "the process did not answer the signal for its stacks", 0
    return _read(text, answering), "faulthandler: no thread in its answer", len(text)


def _read(text: bytes, answering: Answering) -> tuple[ThreadStack, ...]:
    threads = tuple(thread for dump in read_contents([text]).dumps for thread in dump.threads)
    idents = [int(found, 16) for found in _HEADER.findall(text)]
    if len(idents) != len(threads) or answering.answer.main_ident not in idents:
        return threads
    main = idents.index(answering.answer.main_ident)
    return tuple(
        msgspec.structs.replace(
            thread,
            is_main=place == main,
            thread_id=answering.pid if place == main else thread.thread_id,
            name="MainThread" if place == main else thread.name,
        )
        for place, thread in enumerate(threads)
    )


def _holds(pid: int, fd: int, path: str) -> bool:
    """Whether the descriptor is the file; where it may not be seen, the probe's own look has to do.

    Number 900 of a forked child that has closed it is taken again only by a child with 900 others open.
    """
    try:
        theirs = os.stat(f"/proc/{pid}/fd/{fd}")  # noqa: PTH116 - through the link
        ours = os.stat(path)  # noqa: PTH116
    except PermissionError:
        return Path(path).exists()
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def _may_take(pid: int, thread_id: int) -> bool:
    """Whether a thread lives and does not block the signal."""
    status = read_file(f"/proc/{pid}/task/{thread_id}/status", LONG_BYTES) if thread_id else None
    return status is not None and not status_number(status, b"\nSigBlk:", 16) & _BIT


def _is_its_own(fd: int, pid: int) -> bool:
    """Whether a file may be emptied for a process: its user's, and under no other name."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid in _owners(pid) and found.st_nlink == 1


@contextlib.contextmanager
def _taken(path: str, *, deadline: float) -> Generator[int]:
    """The stacks file, open and locked against others who ask; -1 when they kept it until the deadline."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield -1
                    return
                time.sleep(_POLL_SECONDS)
        yield fd
    finally:
        os.close(fd)


def _send(answering: Answering, *, to_thread: bool) -> bool:
    """Send the signal to this very process: a pid may have been given to another one."""
    pidfd = os.pidfd_open(answering.pid)
    try:
        status = read_file(f"/proc/{answering.pid}/status", LONG_BYTES)
        caught = status_number(status, b"\nSigCgt:", 16) & _BIT
        if proc.start_ticks(answering.pid) != answering.start_ticks or not caught:
            return False
        if to_thread:
            return _send_to_thread(answering.pid, answering.answer.thread_id)
        signal.pidfd_send_signal(pidfd, DUMP_SIGNAL)
        return True
    finally:
        os.close(pidfd)


def _send_to_thread(pid: int, thread_id: int) -> bool:
    number = _TGKILL.get(platform.machine())
    return number is not None and ctypes.CDLL(None).syscall(number, pid, thread_id, DUMP_SIGNAL) == 0


def _wait(pid: int, takers: Collection[str], fd: int, *, deadline: float) -> None:
    """Until the handler has begun to write and has ended: it runs with its signal blocked.

    Args:
        pid: the process.
        takers: its threads that did not block the signal.
        fd: what it writes to, empty before.
        deadline: ``time.monotonic()`` after which it is not waited for any longer.
    """
    while time.monotonic() < deadline:
        # In this order: between taking the signal and blocking it nothing is written yet.
        if os.fstat(fd).st_size and not any(_is_busy(pid, thread) for thread in takers):
            return
        time.sleep(_POLL_SECONDS)


def _is_busy(pid: int, thread: str) -> bool:
    status = read_file(f"/proc/{pid}/task/{thread}/status", LONG_BYTES)
    fields = (b"\nSigPnd:", b"\nShdPnd:", b"\nSigBlk:")
    return any(status_number(status, field, 16) & _BIT for field in fields)


def _takers(pid: int) -> tuple[str, ...]:
    """Threads that do not block the signal."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - hot path
    except OSError:
        return ()
    return tuple(thread for thread in threads if _may_take(pid, int(thread)))
