"""What is done with the lines of the pipe: timers to the registry, events out, the rest counted.

Told the time, and knowing processes only by the question it was given, it has no clock or pipe. A bad
line costs nobody else anything: its kind is logged once and counted, and the good request that may stand
at its end (a writer died in the middle of a line before it) is still taken. A request of a process that
nobody knows is kept for a second and asked about again: a worker may be quicker to set its first timer than
the agent to learn the pids of all its workers.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.watchdog.timers.registry import TimerRegistry
from rankscope.watchdog.timers.wire import (
    Event,
    FileTimerRequest,
    Kind,
    Skipped,
    decode,
    resynchronise,
)

_UNKNOWN_FOR: Final = 1.0
"""Seconds for which "no process of this job" stands before it is asked again."""
_MOST_KEPT: Final = 1024
"""Requests of unknown processes that are kept: what strangers write must not fill the memory."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TimerCounts:
    """What the server has read and done since it was made.

    Attributes:
        requests: timers set and released.
        events: events handed on.
        expired: timers that expired.
        skipped: lines that were not used, by kind.
    """

    requests: int
    events: int
    expired: int
    skipped: Mapping[Kind, int]


class Intake:
    """Lines in, state and events out. One thread at a time."""

    def __init__(self, registry: TimerRegistry, is_known_pid: Callable[[int], bool] | None) -> None:
        self._registry = registry
        self._is_known_pid = is_known_pid
        self._requests = self._events = 0
        self._skipped: Counter[Kind] = Counter()
        # Until when the answer about a process stands: for ever for one of the job's.
        self._known: dict[int, float] = {}
        self._heard: dict[int, float] = {}
        self._kept: dict[int, list[tuple[FileTimerRequest, float, float, float]]] = {}

    def take(self, lines: Sequence[bytes], *, now: float, wall: float, grace: float) -> list[Event]:
        """Take in lines; times as in ``TimerRegistry.handle``. Returns the events among them."""
        self.ask_again(now)
        events: list[Event] = []
        for line in lines:
            said: FileTimerRequest | Event | Skipped | None = decode(line)
            if isinstance(said, Skipped):
                self._skip(said)
                said = _at_the_end_of(line)
            if isinstance(said, FileTimerRequest):
                if self._listens_to(said.worker_pid, now):
                    self._handle(said, now, wall, grace)
                else:
                    self._keep(said, now, wall, grace)
            elif said is not None:
                if self._listens_to(said.pid, now):
                    self._events += 1
                    events.append(said)
                else:
                    self._skip_stranger(said.pid)
        return events

    def ask_again(self, now: float) -> None:
        """Take in what was kept of processes that have turned out to be the job's; skip what others wrote."""
        for pid in [pid for pid in self._kept if now >= self._known.get(pid, -math.inf)]:
            kept = self._kept.pop(pid)
            if self._listens_to(pid, now):
                for each in kept:
                    self._handle(*each)
            else:
                self._skip_stranger(pid, times=len(kept))

    def next_question(self) -> float:
        """When ``ask_again`` has something to ask; infinite when nothing is kept."""
        return min((self._known.get(pid, -math.inf) for pid in self._kept), default=math.inf)

    def is_still_known(self, pid: int) -> bool:
        """Whether a process that was the job's still is: its rank may have been restarted without it."""
        return self._ask(pid)

    def counts(self, *, expired: int) -> TimerCounts:
        """What was taken in so far."""
        return TimerCounts(self._requests, self._events, expired, dict(self._skipped))

    def heard(self) -> dict[int, float]:
        """When each process was last heard."""
        return dict(self._heard)

    def pids(self) -> list[int]:
        """Processes that have written."""
        return list(self._known)

    def clear(self, pids: Collection[int]) -> None:
        """Forget these processes."""
        for pid in pids:
            self._known.pop(pid, None)
            self._heard.pop(pid, None)
            if kept := self._kept.pop(pid, None):
                self._skip_stranger(pid, times=len(kept))

    def _listens_to(self, pid: int, now: float) -> bool:
        stands_until = self._known.get(pid, -math.inf)
        if now >= stands_until:
            stands_until = self._known[pid] = math.inf if self._ask(pid) else now + _UNKNOWN_FOR
        if stands_until < math.inf:
            return False
        self._heard[pid] = now
        return True

    def _handle(self, request: FileTimerRequest, now: float, wall: float, grace: float) -> None:
        self._requests += 1
        self._registry.handle(request, now=now, wall=wall, grace=grace)

    def _keep(self, request: FileTimerRequest, now: float, wall: float, grace: float) -> None:
        if sum(map(len, self._kept.values())) >= _MOST_KEPT:
            self._skip_stranger(request.worker_pid)
            return
        self._kept.setdefault(request.worker_pid, []).append((request, now, wall, grace))

    def _ask(self, pid: int) -> bool:
        if self._is_known_pid is None:
            return True
        try:
            return self._is_known_pid(pid)
        except Exception:
            # The caller's code on the server's thread: an error there must not end the timers.
            _logger.exception("cannot tell whether process %d belongs to the job", pid)
            return False

    def _skip_stranger(self, pid: int, *, times: int = 1) -> None:
        for _ in range(times):
            self._skip(Skipped("unknown_pid", f"process {pid} is none of this job's", b""))

    def _skip(self, skipped: Skipped) -> None:
        if skipped.kind not in self._skipped:
            _logger.warning(
                "a line in the timers' pipe is skipped, %s (%s): %r; more of this kind are only counted",
                skipped.kind,
                skipped.detail,
                skipped.preview,
            )
        self._skipped[skipped.kind] += 1


def _at_the_end_of(spoilt: bytes) -> FileTimerRequest | Event | None:
    rest = resynchronise(spoilt)
    said = None if rest is None else decode(rest)
    return None if isinstance(said, Skipped) else said
