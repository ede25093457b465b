"""Starts torch's own C++ worker server in the worker, on a socket in a private folder.

It answers while Python code cannot, and tells the flight record and what the process waits in. It is started
in a thread of its own with a table of descriptors of its own, in which no garbage is collected: none of the
user's files is seen, closed or kept open there, none of the server's can be closed by the user or is
inherited by children, and the line that the constructor prints goes nowhere, while the user's stderr stays
what it is. A client that hangs up costs a SIGPIPE, which the server's threads block. What the server is asked
is not known here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Generator
from types import ModuleType
from typing import Final

from rankscope.watchdog.answers import fits_socket, socket_file
from rankscope.watchdog.probe.signal_masks import SIGACTION_BYTES, all_blocked

MODULE: Final = "torch._C._distributed_c10d"
_CLOSE_RANGE: Final = 436
"""Number of ``close_range`` (Linux 5.9), the same on all architectures but alpha; glibc has it from 2.34."""
_CLOSE_RANGE_UNSHARE: Final = 2
_START: Final = 1.0
"""Seconds that the start is waited for by the probe's thread; it takes some milliseconds."""
_LAST_FD: Final = 0xFFFFFFFF
_LEAST_THREADS: Final = 8
_WORKERS: Final = 16
"""Workers that may start servers at the same time, for the room that is asked for."""


class WorkerServer:
    """The server, once. Never raises, and takes nothing from the training's thread.

    Args:
        folder: the private folder; without one there is no server.
    """

    def __init__(self, folder: str) -> None:
        self._path = socket_file(folder, os.getpid()) if folder else ""
        self._pid = os.getpid()
        self._tried = not folder
        self._holds_collection = False

    def look(self) -> None:
        """Start it once torch's module is loaded; for the probe's thread."""
        if self._tried or MODULE not in sys.modules or os.getpid() != self._pid:
            return
        self._tried = True
        server = getattr(sys.modules[MODULE], "_WorkerServer", None)
        if server is None or not fits_socket(self._path):
            return
        import ctypes

        starter = threading.Thread(
            target=_start, args=(server, self._path, ctypes), name="rankscope-server", daemon=True
        )
        with self._no_collection():
            # The threads that the server makes inherit the mask.
            with all_blocked():
                starter.start()
            starter.join(_START)

    @contextlib.contextmanager
    def _no_collection(self) -> Generator[None]:
        """Collect no garbage: the end of a file of the user's would not find its descriptor in that thread.

        Ended here and not there: what has piled up meanwhile is collected at once by whoever goes on.
        """
        self._holds_collection = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            self._collect_again()

    def _collect_again(self) -> None:
        if self._holds_collection:
            self._holds_collection = False
            gc.enable()

    def close(self) -> None:
        """Remove the socket at the interpreter's end; the server itself is left to the kernel."""
        if self._tried and self._path and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108 - pathlib would be one more import

    def silence(self) -> None:
        """Forget it in a forked child, which has neither its threads nor its descriptors."""
        self._tried = True
        self._collect_again()


def _start(server: type[object], path: str, ctypes: ModuleType) -> None:
    # The thread's edge: a torch that takes other arguments has no server of ours.
    with contextlib.suppress(Exception):
        # Its own descriptors first: what it opens to look for room is none of the user's then.
        if not _leave_descriptors(ctypes) or not has_room():
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - of a process before with this pid
        with _broken_pipes_kept(ctypes):
            started = server(path)  # type: ignore[call-arg] # torch's own constructor
        # Never destroyed: its destructor talks to stderr, and in a forked child closes what is not its own.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(started))


@contextlib.contextmanager
def _broken_pipes_kept(ctypes: ModuleType) -> Generator[None]:
    """Keep what the user's process does on SIGPIPE: the server's constructor has it ignored from then on."""
    libc = ctypes.CDLL(None)
    before, after = (ctypes.create_string_buffer(SIGACTION_BYTES) for _ in range(2))
    libc.sigaction(signal.SIGPIPE, None, before)
    try:
        yield
    finally:
        libc.sigaction(signal.SIGPIPE, None, after)
        if after.raw != before.raw:
            libc.sigaction(signal.SIGPIPE, before, None)


def _leave_descriptors(ctypes: ModuleType) -> bool:
    """Give the calling thread a table with nothing but /dev/null in it; whether that worked.

    ``CLOSE_RANGE_UNSHARE`` copies only what stays open: no file of the user's is opened or closed once more
    (on a network file system a close writes back).
    """
    first, last, flags = ctypes.c_uint(3), ctypes.c_uint(_LAST_FD), ctypes.c_uint(_CLOSE_RANGE_UNSHARE)
    if ctypes.CDLL(None).syscall(_CLOSE_RANGE, first, last, flags) != 0:
        return False
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if null > 2:  # noqa: PLR2004 - it may have taken the place of a closed standard stream
        os.close(null)
    return True


def has_room() -> bool:
    """Whether the server's threads can be had for certain: one that cannot ends the process.

    It makes one a core (8 at least). Limits are those of the cgroup, of the user and of the address space.
    """
    needed = _WORKERS * max(_LEAST_THREADS, os.cpu_count() or 1)
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return False
    tasks = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    running = _running_tasks()
    if tasks != resource.RLIM_INFINITY and tasks - running < needed:
        return False
    return all(most - now >= needed for most, now in _cgroup_limits())


def _running_tasks() -> int:
    """Threads of the whole host, an upper bound of the user's: ``/proc/loadavg``'s ``3/812``."""
    fields = (_read("/proc/loadavg") or "").split()
    total = fields[3].partition("/")[2] if len(fields) > 3 else ""  # noqa: PLR2004
    return int(total) if total.isdigit() else 0


def _cgroup_limits() -> list[tuple[int, int]]:
    """``pids.max`` and ``pids.current`` of this process's cgroup and those above it."""
    found: list[tuple[int, int]] = []
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if controllers and "pids" not in controllers.split(","):
            continue
        root = "/sys/fs/cgroup/pids" if controllers else "/sys/fs/cgroup"
        while True:
            most, now = _read(f"{root}{path}/pids.max"), _read(f"{root}{path}/pids.current")
            if most and now and most.strip().isdigit() and now.strip().isdigit():
                found.append((int(most), int(now)))
            if not path.strip("/"):
                break
            path = path.rpartition("/")[0]
    return found


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would be one more import
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None
