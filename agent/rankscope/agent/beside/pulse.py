"""The pulse of a job that reports no steps: progress, waits and idleness from what its processes do. Pure.

Training is synchronous: a rank that neither used the CPU nor woke up cannot have taken part in a step. So
the job has made progress when all of its ranks have stirred. When some stir and others are still, that is
an evaluation on one rank, a hang in a loop, or a rank that has nothing to do; a *look* at the stacks tells
these apart: whoever is still inside a communication call waits. What comes out are sequence numbers of a
made-up process group, so that the detector (``watchdog.detector``) needs to know nothing of all this. It
has no clock, process, file or tool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rankscope.watchdog.limits import (
    BUSY_CPU_SHARE,
    CAPTURE_SWITCHES,
    PAUSE,
    QUIET_CPU_SHARE,
    QUIET_SWITCH_RATE,
)
from rankscope.watchdog.observations import RankObservation
from rankscope.watchdog.page import GroupSeq
from rankscope.watchdog.situation import main_share

SPAN: Final = 2.0
"""Seconds over which stirring is measured: a hang's beginning is noticed as much later."""
FIRST_LOOK: Final = 8.0
"""Seconds without progress after which a job is looked at whose ranks stir in part; then at each doubling."""
STILL: Final = 4.0
"""Seconds without stirring from which a rank is still."""
LOG_GAPS: Final = 3
"""Pauses between two outputs from which a job's logs have a rhythm."""
LOG_FACTOR: Final = 10.0
LOG_FLOOR: Final = 120.0
"""Seconds; a log silent for longer, and ten times its longest pause, outweighs the processes' life."""
NAME: Final = "observed"
"""Name of the made-up group."""

Standings = Mapping[int, tuple[tuple[int, int], ...]]
"""By rank: last called and last completed collective of each of its groups, always in the same order."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A look that is wanted.

    Attributes:
        still: ranks that do not stir; stirring those that do.
    """

    still: frozenset[int]
    stirring: frozenset[int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has shown.

    Attributes:
        wanted: what was asked for.
        communicating: still ranks that stand in a communication call.
        held: stirring ranks that stood in the same communication call in every sample: they spin.
        moving: stirring ranks that were seen in different communication calls, or in one and outside.
        blind: whether none of the still ranks could be observed.
    """

    wanted: Wanted
    communicating: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    moving: frozenset[int] = frozenset()
    blind: bool = False


class _Log:
    """When the job logs, and whether it has not for much longer than it ever did."""

    def __init__(self) -> None:
        self._before: Mapping[int, int] | None = None
        self._last: float | None = None
        self._gaps = 0
        self._longest = 0.0

    def take(self, now: float, logged: Mapping[int, int]) -> frozenset[int]:
        """Take in the totals; whose have risen."""
        before, self._before = self._before, logged
        if before is None or logged is before:
            return frozenset()
        writers = frozenset(rank for rank, size in logged.items() if size > before.get(rank, 0))
        if writers:
            if self._last is not None:
                self._gaps += 1
                self._longest = max(self._longest, now - self._last)
            self._last = now
        return writers

    def is_overdue(self, now: float) -> bool:
        """Whether a job that logs steadily has stopped: then what stirs may be nothing but spinning."""
        if self._last is None or self._gaps < LOG_GAPS:
            return False
        return now - self._last > max(LOG_FACTOR * self._longest, LOG_FLOOR)


class Pulse:
    """Feels the pulse of the ranks of one launch.

    Attributes:
        waits: ranks that wait, by a look, and have been still since (or spin).
        idle: ranks that are still while the job goes on without them.
    """

    def __init__(self) -> None:
        self.waits: frozenset[int] = frozenset()
        self.idle: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()
        self._mark = 0
        self._marked_at: float | None = None
        self._stirred: set[int] = set()
        self._ticks: deque[tuple[float, dict[int, RankObservation]]] = deque()
        self._log = _Log()
        self._standings: Standings | None = None
        self._captured_at = float("-inf")
        self._recent: frozenset[int] = frozenset()
        self._last_stirred: dict[int, float] = {}
        self._looked_at = 0.0
        self._next_look = FIRST_LOOK
        self._looking = False

    def captured(self, now: float) -> None:
        """A tool has looked at the ranks, which wakes them a few times."""
        self._captured_at = now

    def take(
        self, now: float, ranks: Sequence[RankObservation], *, logged: Mapping[int, int]
    ) -> tuple[RankObservation, ...]:
        """Take in one tick.

        Args:
            now: the time of the tick.
            ranks: what was observed; steps and groups are not looked at.
            logged: bytes that were logged so far, by rank; a negative one for files of no rank.

        Returns:
            The same ranks with the made-up group: its ``completed`` rises with each sign of progress, and
            who waits has ``enqueued`` one more.
        """
        stirring = self._stirring(now, ranks)
        writers = self._log.take(now, logged)
        woke = (self.waits - self._held) & stirring
        self.idle -= stirring
        self._stirred |= stirring
        needed = {rank.rank for rank in ranks if rank.alive} - self.idle
        # Output of a rank that is still, or waits, comes from a thread beside the training.
        working = stirring - self.waits
        writes = bool(writers & working) or (bool(working) and any(rank < 0 for rank in writers))
        told_otherwise = bool(self._standings) or self._log.is_overdue(now)
        together = bool(needed) and needed <= self._stirred and not told_otherwise
        if self._marked_at is None:
            self._marked_at = now
        elif woke or writes or together:
            self._progress(now)
        return tuple(self._with_group(rank, len(ranks)) for rank in ranks)

    def recorded(self, now: float, standings: Standings) -> None:
        """Take in what torch's own records say, where ranks can be asked: from then on they tell progress.

        Args:
            now: when they were read.
            standings: of all ranks that answered, each group's last called and last completed collective.
        """
        before, self._standings = self._standings, standings
        if before is None or not standings:
            return
        if _completed(standings) > _completed(before):
            self._progress(now)
        elif standings == before:
            inside = (rank for rank, groups in standings.items() if any(one > two for one, two in groups))
            self.waits = self._held = frozenset(inside)

    def wanted(self, now: float) -> Wanted | None:
        """The look that is wanted now, once; ``seen`` answers it."""
        latest = self._ticks[-1][1] if self._ticks else {}
        alive = frozenset(rank for rank, one in latest.items() if one.alive)
        stirring = self._recent & alive
        still = frozenset(rank for rank in alive - self.idle if now - self._last_stirred[rank] >= STILL)
        silent = now - (self._marked_at if self._marked_at is not None else now)
        if self._standings or self._looking or not stirring or not still or silent < self._next_look:
            return None
        self._looking = True
        self._looked_at = now
        self._next_look = 2 * silent
        return Wanted(still, stirring - self.waits or stirring)

    def seen(self, now: float, seen: Seen) -> None:
        """Take in what a look has shown; ranks that have stirred meanwhile are past it."""
        self._looking = False
        still = frozenset(
            rank for rank in seen.wanted.still if self._last_stirred.get(rank, now) < self._looked_at
        )
        waiting = still & seen.communicating
        spinning = seen.held if seen.held >= seen.wanted.stirring else frozenset()
        if not still or (seen.blind and self.waits):
            return
        if seen.moving or not (waiting or spinning):
            # The others go on without them, or nobody could be seen to wait for anybody.
            self.idle |= still
            self._progress(now)
            return
        self.waits, self._held = waiting | spinning, spinning

    def _progress(self, now: float) -> None:
        self._mark += 1
        self._marked_at = now
        self._stirred = set()
        self.waits = self._held = frozenset()
        self._next_look = FIRST_LOOK

    def _stirring(self, now: float, ranks: Sequence[RankObservation]) -> frozenset[int]:
        if self._ticks and now - self._ticks[-1][0] > PAUSE:
            # The machine stood still, or we did.
            self._ticks.clear()
            self._marked_at = now
        self._ticks.append((now, {rank.rank: rank for rank in ranks}))
        while len(self._ticks) > 2 and now - self._ticks[1][0] >= SPAN:  # noqa: PLR2004 - two ends
            self._ticks.popleft()
        then, before = self._ticks[0]
        forgiven = CAPTURE_SWITCHES if self._captured_at >= then else 0.0
        waiting = self.waits - self._held
        self._recent = frozenset(
            one.rank
            for one in ranks
            if one.alive
            and _stirs(before.get(one.rank), one, now - then, forgiven=forgiven, alone=one.rank in waiting)
        )
        for rank in ranks:
            if rank.rank in self._recent:
                self._last_stirred[rank.rank] = now
            else:
                self._last_stirred.setdefault(rank.rank, now)
        return self._recent

    def _with_group(self, rank: RankObservation, size: int) -> RankObservation:
        entered = self._mark + int(rank.rank in self.waits)
        return replace(rank, probed=True, groups=(GroupSeq(NAME, size, entered, self._mark),))


def _completed(standings: Standings) -> int:
    return sum(completed for groups in standings.values() for _called, completed in groups)


def _stirs(
    before: RankObservation | None, now: RankObservation, seconds: float, *, forgiven: float, alone: bool
) -> bool:
    """Whether a rank did anything at all: a hung one's main thread neither runs nor wakes.

    Args:
        before: the rank at the start of the span, ``None`` when it was not there.
        now: at its end.
        seconds: length of the span.
        forgiven: switches that a tool has caused.
        alone: judge the main thread alone: the loader workers of a rank that waits may still fill a queue.
    """
    if before is None or seconds <= 0:
        return False
    delay = now.run_delay_seconds - before.run_delay_seconds
    on_cpu = now.cpu_seconds - before.cpu_seconds - delay
    if main_share(on_cpu, delay, seconds, held=False) >= QUIET_CPU_SHARE:
        return True
    if now.switches - before.switches > QUIET_SWITCH_RATE * seconds + forgiven:
        return True
    if now.io_bytes > before.io_bytes:
        return True
    if alone:
        return False
    others = now.other_cpu_seconds - before.other_cpu_seconds
    children = now.children_cpu_seconds - before.children_cpu_seconds
    return max(others, children) >= BUSY_CPU_SHARE * seconds
