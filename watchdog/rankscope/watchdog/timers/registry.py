"""Which timers run and which have expired: the decisions of the timers' server.

Pure: told of requests and of the time (CLOCK_MONOTONIC, seconds), it answers with expired timers. It
knows no pipe, clock, thread, process or signal. A timer is a scope of a process; setting it again moves
its expiry, as in torch.
"""

from __future__ import annotations

import math
import signal as signals
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankscope.watchdog.timers.wire import FileTimerRequest

_HELD_BACK: Final = 1.0
"""Seconds in which writers that met a full pipe send what they kept; they need some ms."""
_HELD_BACK_AT_MOST: Final = 10.0
"""Seconds for which a pipe that stays full may keep timers from expiring."""
_ON_ITS_WAY: Final = 0.25
"""Seconds; a request is read some ms after it was written. Longer, and somebody stood still meanwhile."""


class ActiveTimer(NamedTuple):
    """One running timer at the time of a look.

    Attributes:
        pid: process that holds it.
        scope: its name.
        seconds_left: until it expires, negative when that is already due; infinite for never.
    """

    pid: int
    scope: str
    seconds_left: float


@dataclass(slots=True)
class _Timer:
    request: FileTimerRequest
    deadline: float
    since: float


@dataclass(frozen=True, slots=True)
class ExpiredTimers:
    """The timers of one process that expired together.

    Attributes:
        pid: the process.
        requests: what it had asked for, the earliest expiry first.
        since: when the oldest of them reached the server (CLOCK_MONOTONIC, seconds).
    """

    pid: int
    requests: tuple[FileTimerRequest, ...]
    since: float


class TimerRegistry:
    """The running timers of one node.

    Costs a request O(1): ``next_deadline`` is a lower bound that only a look at all timers raises, so a
    released timer costs at most one wake-up that finds nothing.
    """

    def __init__(self) -> None:
        self._timers: dict[tuple[int, str], _Timer] = {}
        self._fired: set[tuple[int, str]] = set()
        self._bound = math.inf
        self._withheld_from = self._withheld_until = -math.inf

    def __len__(self) -> int:
        return len(self._timers)

    def handle(self, request: FileTimerRequest, *, now: float, wall: float, grace: float = 0.0) -> None:
        """Take in one request.

        Args:
            request: what was read.
            now: CLOCK_MONOTONIC at receipt.
            wall: seconds since the epoch at the same moment: what is left of a request that knows only
                the wall clock is computed here, once, and a later step of that clock moves nothing.
            grace: paused time to give to a timer of torch's client that was on its way during the pause.
                A request of ours says when it was written, and gets the time that it was on its way.
        """
        key = request[:2]
        self._fired.discard(key)
        if request.expiration_time < 0:
            self._timers.pop(key, None)
            return
        deadline = request.monotonic
        if deadline is None:
            deadline = now + (request.expiration_time - wall) + grace
        elif request.after is not None and now - (deadline - request.after) > _ON_ITS_WAY:
            deadline = now + request.after
        self._timers[key] = _Timer(request, deadline, now)
        self._bound = min(self._bound, deadline)

    def next_deadline(self) -> float:
        """No timer expires before this moment; infinite when none runs."""
        return max(self._bound, self._withheld_until) if self._timers else math.inf

    def expired(self, now: float) -> list[ExpiredTimers]:
        """Take out the timers whose time is up, a process at a time, the longest overdue first."""
        if now < max(self._bound, self._withheld_until):
            return []
        due = sorted((t for t in self._timers.values() if t.deadline <= now), key=lambda t: t.deadline)
        by_pid: dict[int, list[_Timer]] = {}
        for timer in due:
            by_pid.setdefault(timer.request.worker_pid, []).append(timer)
            del self._timers[timer.request[:2]]
            self._fired.add(timer.request[:2])
        self._bound = min((t.deadline for t in self._timers.values()), default=math.inf)
        return [
            ExpiredTimers(pid, tuple(t.request for t in timers), min(t.since for t in timers))
            for pid, timers in by_pid.items()
        ]

    def withhold(self, now: float) -> None:
        """Let nothing expire for a moment: the pipe was full, and a release may still be with its writer."""
        if now > self._withheld_until:
            self._withheld_from = now
        self._withheld_until = min(now + _HELD_BACK, self._withheld_from + _HELD_BACK_AT_MOST)

    def give_back(self, seconds: float) -> None:
        """Move every expiry by time in which nothing could run."""
        for timer in self._timers.values():
            timer.deadline += seconds
        self._bound += seconds

    def clear(self, pids: Collection[int]) -> None:
        """Forget the timers of these processes."""
        for key in [key for key in self._timers if key[0] in pids]:
            del self._timers[key]
        self._fired = {key for key in self._fired if key[0] not in pids}

    def is_overrun(self, pid: int, scope: str) -> bool:
        """Whether a timer expired and has neither been given up nor set again since."""
        return (pid, scope) in self._fired

    def pids(self) -> set[int]:
        """Processes that hold a timer, or overran one."""
        return {pid for pid, _scope in (*self._timers, *self._fired)}

    def active(self, now: float) -> list[ActiveTimer]:
        """All running timers, the next to expire first."""
        return sorted(
            (ActiveTimer(pid, scope, t.deadline - now) for (pid, scope), t in self._timers.items()),
            key=lambda timer: timer.seconds_left,
        )


def signal_of(requests: Iterable[FileTimerRequest]) -> FileTimerRequest | None:
    """The request whose signal ends the worker: torch's rule, the earliest expired one that names one."""
    return next((request for request in requests if 0 < request.signal < signals.NSIG), None)
