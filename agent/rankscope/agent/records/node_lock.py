"""Which folder under ``nodes/`` an agent takes, and that nobody else takes it meanwhile.

Several agents on one host have ``host``, ``host~2`` and so on. An agent that was killed and is started again
takes the folder that it left, so that its counters go on; a watch beside a job leaves agents' folders alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rankscope.diag.errors import StoreError
from rankscope.diag.store.files import make_folders, read_json
from rankscope.diag.store.job import AgentFile, JobFolder

_KILLED, _ENDED, _NEW = range(3)
MOST_AGENTS: Final = 1000
"""Agents of one host in one job folder."""


class NodeLock:
    """A node folder that is ours until it is released, or this process ends.

    Attributes:
        folder: the job's folder.
        node: the name of the node's in it.
    """

    def __init__(self, folder: JobFolder, node: str, fd: int) -> None:
        self.folder = folder
        self.node = node
        self._fd = fd
        _HELD.add(self)

    def release(self) -> None:
        """Give the folder back."""
        _HELD.discard(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_HELD: Final[weakref.WeakSet[NodeLock]] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """A forked child must not keep the folder of an agent that was killed."""
    for lock in list(_HELD):
        with contextlib.suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)


def take_node(folder: JobFolder, host: str, *, shared: bool, beside: bool) -> NodeLock:
    """Take a node folder.

    Args:
        folder: the job's.
        host: this host's name.
        shared: whether several agents of the job may meet in it; without, the next job folder is tried.
        beside: whether a watch takes it.

    Raises:
        OSError: no folder can be made or locked.
    """
    places = [_place(folder, host, number, shared=shared) for number in range(1, MOST_AGENTS + 1)]
    left = _left(places)
    if beside:
        places = [place for place in places if place not in left]
    else:
        # Sorting keeps the order of those that are alike.
        places.sort(key=lambda place: left.get(place, _NEW))
    for job, node in places:
        fd = _try_lock(JobFolder(job).node(node))
        if fd is not None:
            return NodeLock(JobFolder(job), node, fd)
    raise OSError(f"{MOST_AGENTS} agents of {host} in {folder.path}")


def _place(folder: JobFolder, host: str, number: int, *, shared: bool) -> tuple[Path, str]:
    suffix = "" if number == 1 else f"~{number}"
    if shared:
        return folder.path, host + suffix
    return folder.path.with_name(folder.path.name + suffix), host


def _left(places: Iterable[tuple[Path, str]]) -> dict[tuple[Path, str], int]:
    """The places where an agent was before, and how it left."""
    found: dict[tuple[Path, str], int] = {}
    for job, node in places:
        path = JobFolder(job).node(node)
        if not path.is_dir():
            break  # they are numbered without a gap
        with contextlib.suppress(StoreError):
            agent = read_json(path / "agent.json", AgentFile)
            if not agent.beside:
                found[job, node] = _ENDED if agent.phase == "ended" else _KILLED
    return found


def _try_lock(path: Path) -> int | None:
    make_folders(path)
    fd = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
