"""Looks at a round's processes while it runs: when workers end, what stays a zombie, what outlives agents.

The round's own process is the subreaper of everything below it (``prctl``), so that what an agent leaves
behind becomes its child, and is reaped as init would. It must not know what is expected.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from tests.faults.ranks_of import pids_of
from tests.jobs import Job

from rankscope.diag import proc

_SUBREAPER: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``linux/prctl.h``."""
_PAUSE: Final = 0.05
MARK: Final = "CHAOS_ROUND"
"""Variable in the environment of everything that a round starts."""


def become_subreaper() -> None:
    """Be the parent of what is orphaned below.

    Raises:
        OSError: the kernel does not know how.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(slots=True)
class End:
    """One worker's end.

    Attributes:
        began: when it was first seen (unix seconds).
        at: when it ended, ``None`` while it runs.
    """

    rank: int
    pid: int
    began: float
    at: float | None = None


@dataclass(slots=True)
class Zombie:
    """A child that its agent has not asked after."""

    pid: int
    since: float
    seconds: float = 0.0


@dataclass(slots=True)
class Onlooker:
    """A thread that looks; ``close`` ends it.

    Attributes:
        job: whose processes.
        ends: of all workers that were seen, in the order of their starts.
        zombies: by pid, of the agents, and how long each was one.
        pids: all that were seen.
        is_whole: whether it looked from ``open`` to ``close``: of what it did not see nothing is known.
    """

    job: Job
    ends: dict[int, End] = field(default_factory=dict[int, End])
    zombies: dict[int, Zombie] = field(default_factory=dict[int, Zombie])
    pids: set[int] = field(default_factory=set[int])
    is_whole: bool = False
    _descriptors: dict[int, int] = field(default_factory=dict[int, int])
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, name="onlooker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self.is_whole = self._thread is not None and self._thread.is_alive()
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _run(self) -> None:
        while not self._over.wait(_PAUSE):
            self._look()

    def _look(self) -> None:
        for rank, pid in pids_of(self.job).items():
            if pid not in self.ends:
                self._follow(rank, pid)
        self._note_ends()
        agents_children = proc.children(self.job.pid)
        self.pids.update(agents_children)
        self._note_zombies(agents_children)
        self._reap()

    def _follow(self, rank: int, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._descriptors[pid] = os.pidfd_open(pid)
            self.ends[pid] = End(rank, pid, time.time())

    def _note_ends(self) -> None:
        poll = select.poll()
        of = {self._descriptors[pid]: end for pid, end in self.ends.items() if end.at is None}
        for descriptor in of:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _events in poll.poll(0):
            of[descriptor].at = time.time()

    def _note_zombies(self, children: tuple[int, ...]) -> None:
        now = time.monotonic()
        for pid in children:
            if _state(pid) == "Z":
                zombie = self.zombies.setdefault(pid, Zombie(pid, now))
                zombie.seconds = now - zombie.since

    def _reap(self) -> None:
        for pid in proc.children(os.getpid()):
            if pid != self.job.pid and _state(pid) == "Z":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _state(pid: int) -> str:
    facts = proc.read_facts(pid, now=0.0)
    return facts.state if facts is not None else ""


def alive_of(token: str) -> dict[int, str]:
    """Processes of a round that run, and their command lines, whoever is their parent."""
    found: dict[int, str] = {}
    for pid in proc.process_table():
        if (proc.environ(pid) or {}).get(MARK) == token and _state(pid) not in ("Z", "X", ""):
            found[pid] = " ".join(proc.command_line(pid))[:120] or "?"
    return found
