"""The constants of noticing and the two learned clocks. Pure: times come in as arguments.

Source of every constant: DIAGNOSIS.md, "Noticing" (25 real gloo jobs of 3 ranks, torch 2.13); they are
kept in this one table.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW: Final = 4.0
"""Seconds over which activity of a sink is measured, and between the two snapshots."""
FIRST_WINDOW: Final = 2.0
"""Seconds between the two snapshots here where others are asked then: all take two more, ``WINDOW`` apart."""
PAUSE: Final = 3.0
"""A gap between the agent's own ticks longer than this means that the machine was paused (seconds)."""
BUSY_CPU_SHARE: Final = 0.10
"""CPU share (run delay counted) from which a thread or child counts as working."""
QUIET_CPU_SHARE: Final = 0.01
HELD_CPU_SHARE: Final = 0.05
"""CPU share of all other threads from which the one that holds the GIL may be at work on a machine that gives
it little of a core; each thread that only wakes for the GIL takes 0.2 to 0.5 % (measured)."""
BUSY_IO_RATE: Final = 20_000.0
"""Bytes a second read and written from which a rank or child counts as working."""
QUIET_SWITCH_RATE: Final = 2.0
"""Voluntary switches a second up to which a thread is quiet; a blocking capture adds about two."""
BEAT_STALE: Final = 3.0
"""Seconds without a beat after which no Python code can have run (DIAGNOSIS.md, decision 8)."""
CAPTURE_SWITCHES: Final = 4.0
"""Switches forgiven in a window in which snapshots are taken."""
WARM_UP_GAPS: Final = 3
"""Signs of progress after a (re)start until which the long limits hold."""
QUIET_FLOOR: Final = 8.0
QUIET_CEILING: Final = 60.0
BUSY_FLOOR: Final = 30.0
BUSY_CEILING: Final = 1800.0
TICKING_LIMIT: Final = 30.0
"""Somebody waits for a rank that polls: published after this (a rank polling for a file)."""
QUIET_FACTOR: Final = 2.0
BUSY_FACTOR: Final = 3.0
REMEMBERED_GAPS: Final = 20
ACT_AFTER_HIGH: Final = 180.0
"""C4D's error: C4D_HANG_TIMEOUT x C4D_HANG_TIMES = 10 s x 18."""
ACT_AFTER_OTHER: Final = 1800.0
"""AIMaster's default interval, used when the diagnosis is not of high confidence."""


LINGER_INTERVAL: Final = 600.0
"""Some ranks have ended, nobody waits for them, the rest lingers (AIMaster's job-exit-hang-interval)."""


@dataclass(frozen=True, slots=True)
class HangSettings:
    """What the user asked for, in seconds.

    Attributes:
        diagnose_after: fixed limit for noticing, ``None`` for the learned ones.
        act_after: AIMaster's job-hang-interval, ``None`` for auto.
        exit_after: AIMaster's job-exit-hang-interval: how long ranks may linger after others have ended,
            ``None`` for as long as they like.
        quiet_floor: the shortest quiet limit that is ever learned; quiet_ceiling the longest, which holds
            until something is known of the job. Whoever sees no steps asks for a higher floor.
    """

    diagnose_after: float | None = None
    act_after: float | None = None
    exit_after: float | None = LINGER_INTERVAL
    quiet_floor: float = QUIET_FLOOR
    quiet_ceiling: float = QUIET_CEILING


LIBRARY_LOOP_LIMIT: Final = 30.0
"""Seconds from which a Python loop with library code at the leaf counts (DIAGNOSIS.md, decision 8)."""
OVERDUE: Final = 10.0
"""Times the busy limit after which even a working rank is called hung, with low confidence (decision 8)."""
STOPPED_AFTER: Final = 3.0
"""Seconds for which all ranks must have been stopped by a signal before it is told."""
FEW_SIGNS: Final = 20
"""Signs of progress up to which a job in which nobody waits is too little known for a short limit."""
ALIVE_AGAIN_AFTER: Final = 90.0
"""Seconds of silence at which a rank that polls or loops, told as information so far, is looked at again."""
ALL_QUIET_AFTER: Final = 45.0
"""Seconds a job is given in which nobody waits for anybody: at the end of an epoch, or in a save to a slow
share, all ranks are quiet (20 s were a false alarm); whoever waits for a rank shows earlier."""
LOOK_AGAIN_AFTER: Final = 60.0
"""Seconds of silence from which what could not be told is looked at again, then at each doubling."""


def act_after(settings: HangSettings, *, hang: bool, confidence: str, lively: bool) -> float | None:
    """Seconds without progress after which what was published is acted on, ``None`` for never.

    A number given by the user holds whatever the confidence, as in AIMaster. Silence that nobody could
    explain is acted on as late as a hang of low confidence, but not while an awaited rank works.
    """
    if settings.act_after is not None:
        return settings.act_after
    if hang:
        return ACT_AFTER_HIGH if confidence == "high" else ACT_AFTER_OTHER
    return None if lively else ACT_AFTER_OTHER


@dataclass(slots=True)
class Clocks:
    """The two limits, learned from gaps that ended by themselves since the (re)start.

    Gaps too short to lift a limit above its floor are not kept, so that thousands of ordinary steps do
    not push the last evaluation out of memory.
    """

    settings: HangSettings = field(default_factory=HangSettings)
    signs: int = 0
    _quiet_gaps: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_GAPS))
    _busy_gaps: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_GAPS))
    _loop_gaps: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_GAPS))

    def learn_quiet(self, gap: float) -> None:
        """Take in seconds of quiet that progress has ended; counts as one sign of progress."""
        self.signs += 1
        if gap * QUIET_FACTOR > QUIET_FLOOR:
            self._quiet_gaps.append(gap)

    def learn_busy(self, gap: float) -> None:
        """Take in a gap (seconds) that progress has ended and in which a sink was working."""
        if gap * BUSY_FACTOR > BUSY_FLOOR:
            self._busy_gaps.append(gap)

    def learn_loop(self, gap: float) -> None:
        """Take in a gap (seconds) that was taken for an endless loop, and ended."""
        self._loop_gaps.append(gap)

    def restart(self) -> None:
        """Forget everything: the workers are new."""
        self.signs = 0
        self._quiet_gaps.clear()
        self._busy_gaps.clear()
        self._loop_gaps.clear()

    @property
    def warming_up(self) -> bool:
        """Whether too little progress was seen to know the job's rhythm."""
        return self.signs < WARM_UP_GAPS

    @property
    def little_known(self) -> bool:
        """Whether the job has shown too little of itself for a short limit when nobody waits for anybody."""
        return self.signs < FEW_SIGNS

    def quiet_limit(self, *, patient: bool) -> float:
        """Seconds without progress and without activity after which a rank is suspected.

        Args:
            patient: take the long limit (loader workers have just started, or nobody waits for anybody).
        """
        if self.settings.diagnose_after is not None:
            return self.settings.diagnose_after
        if self.warming_up or patient:
            limit = self.settings.quiet_ceiling
        else:
            longest = max(self._quiet_gaps, default=0.0)
            limit = max(QUIET_FACTOR * longest, self.settings.quiet_floor)
            limit = min(limit, self.settings.quiet_ceiling)
        return self.within_interval(limit)

    def busy_limit(self) -> float:
        """Seconds without progress after which a working rank is suspected."""
        if self.settings.diagnose_after is not None:
            return self.settings.diagnose_after
        longest = max(self._busy_gaps, default=0.0)
        learned = min(max(BUSY_FACTOR * longest, BUSY_FLOOR), BUSY_CEILING)
        return self.within_interval(BUSY_CEILING if self.warming_up else learned)

    def loop_limit(self) -> float:
        """Seconds without progress after which a working rank is looked at for an endless Python loop."""
        if self.warming_up:
            return self.busy_limit()
        longest = max(self._loop_gaps, default=0.0)
        return self.within_interval(min(max(BUSY_FACTOR * longest, QUIET_FLOOR), BUSY_CEILING))

    def within_interval(self, limit: float) -> float:
        """A user's limits are the longest silence they accept: evidence is taken before it ends."""
        if self.settings.diagnose_after is not None:
            return min(limit, self.settings.diagnose_after)
        if self.settings.act_after is None:
            return limit
        return min(limit, before(self.settings.act_after))


def before(interval: float) -> float:
    """When evidence is taken of a silence that is acted on after ``interval`` seconds."""
    return max(interval - 2 * WINDOW, interval / 2)
