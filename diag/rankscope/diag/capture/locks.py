"""One tracer per process: a lock that all of Rankscope's processes on a host share.

Two blocking tools on one pid get EPERM from the kernel (4 of 6 tries), so the detector, the exit path and
``diag analyze`` take turns. The lock is ``flock`` on a file in a private folder: it ends with its holder,
however that ends. Whoever cannot have it in time looks without stopping the process instead; no lock is
ever waited for without a deadline. This module must not know what is done under the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.002


def lock_folder() -> Path:
    """The user's lock folder.

    A fixed place, not ``$TMPDIR`` or ``$XDG_RUNTIME_DIR``: the agent and the person who analyses its job
    rarely have the same ones, and must meet.
    """
    return Path("/tmp") / f"rankscope-{os.geteuid()}"  # noqa: S108 - owner and mode are checked before use


@contextlib.contextmanager
def process_lock(pid: int, *, deadline: float, folder: Path | None = None) -> Generator[bool]:
    """Hold the lock of a process.

    Args:
        pid: the process that will be traced.
        deadline: ``time.monotonic()`` after which to go on without.
        folder: where the lock files lie, ``lock_folder()`` by default.

    Yields:
        False when somebody else kept the lock until the deadline. True when it is held, and also when
        there is no place for locks at all: a tool that then meets another one gets EPERM, which is
        answered like a lost lock.
    """
    private = str(folder or lock_folder())
    path = f"{private}/{pid}.lock"
    try:
        _make_private(private)
        fd = _acquire(path, deadline)
    except OSError:
        yield True
        return
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        # Removed while held; _acquire sees by the inode that the file it got is no longer the lock.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - hot path, as below
        os.close(fd)


def remove_stale(folder: Path | None = None) -> None:
    """Remove the locks of processes that are gone: whoever is killed while it holds one leaves its file.

    Each is taken first, so that nobody who holds one, or is about to, loses it. Never waits, never raises.

    Args:
        folder: where the lock files lie, ``lock_folder()`` by default.
    """
    private = str(folder or lock_folder())
    with contextlib.suppress(OSError):
        _check_private(private)
        for name in os.listdir(private):  # noqa: PTH208 - as the rest: strings
            pid = name.removesuffix(".lock")
            if pid.isdecimal() and not os.path.lexists(f"/proc/{pid}"):
                _remove_if_free(f"{private}/{name}")


def _remove_if_free(path: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, fd):
                os.unlink(path)  # noqa: PTH108
        finally:
            os.close(fd)


def _make_private(folder: str) -> None:
    if not os.path.lexists(folder):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)  # noqa: PTH102
    _check_private(folder)


def _check_private(folder: str) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a private folder of this user")


def _acquire(path: str, deadline: float) -> int | None:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, fd):
                return fd
            os.close(fd)
        except BlockingIOError:
            os.close(fd)
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)


def _is_still(path: str, fd: int) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(fd).st_ino  # noqa: PTH116
    except FileNotFoundError:
        return False
