"""How long the job has been silent, and since when nobody works: the detector's memory of the ticks. Pure.

It says what was seen, not what follows from it. Activity never is progress; it only says which clock runs.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from rankscope.watchdog.limits import PAUSE, WINDOW
from rankscope.watchdog.observations import RankObservation, SinkClass, Situation, Tick
from rankscope.watchdog.situation import advanced, judge

LIVELY: Final[frozenset[SinkClass]] = frozenset({"busy", "ticking"})
# A window a little shorter than asked is still one: ticks do not fall on whole seconds.
_WINDOW_SLACK: Final = 0.5


class Silence:
    """The last seconds of ticks, and when progress, work and any liveliness were last seen.

    Attributes:
        last_progress: when the last sign of progress was seen, or the (re)start.
        last_busy: when an awaited rank last worked; last_lively when it last worked or polled.
        situation: who waits for whom over the last window.
    """

    def __init__(self) -> None:
        self.last_progress = self.last_busy = self.last_lively = 0.0
        self.situation = Situation()
        self._ticks: deque[Tick] = deque()

    def restart(self, now: float) -> None:
        """Nothing before ``now`` counts."""
        self.last_progress = self.last_busy = self.last_lively = now
        self.situation = Situation()
        self._ticks.clear()

    def progress(self, now: float) -> None:
        """Something moved."""
        self.last_progress = self.last_busy = self.last_lively = now

    def take(self, tick: Tick) -> bool:
        """Remember a tick and say whether it shows progress since the one before."""
        previous = self.latest
        if previous is not None and tick.now - previous.now > PAUSE:
            self._skip(tick.now - previous.now)
        self._ticks.append(tick)
        while len(self._ticks) > 2 and tick.now - self._ticks[1].now >= WINDOW:  # noqa: PLR2004 - two ends
            self._ticks.popleft()
        return previous is not None and _moved(previous, tick)

    def _skip(self, seconds: float) -> None:
        """The agent's own ticks stood still (a paused machine): that time is nobody's silence."""
        self.last_progress += seconds
        self.last_busy += seconds
        self.last_lively += seconds
        self._ticks.clear()

    @property
    def latest(self) -> Tick | None:
        """The newest tick."""
        return self._ticks[-1] if self._ticks else None

    def window_is_full(self, now: float) -> bool:
        """Whether enough was seen to tell how ranks behave."""
        return bool(self._ticks) and now - self._ticks[0].now >= WINDOW - _WINDOW_SLACK

    def judge(self, *, communicating: frozenset[int] = frozenset(), captured_at: float | None = None) -> None:
        """Work out ``situation`` over the window.

        Args:
            communicating: ranks that wait by their stacks, where a snapshot has shown them.
            captured_at: when a snapshot was taken, which costs the ranks a few switches.
        """
        if not self._ticks:
            return
        first, last = self._ticks[0], self._ticks[-1]
        captures = int(captured_at is not None and captured_at >= first.now)
        self.situation = judge(
            first.ranks,
            last.ranks,
            seconds=last.now - first.now,
            communicating=communicating,
            captures=captures,
        )

    def run_clocks(self) -> None:
        """Note what the situation says of work and liveliness."""
        first, last = self._ticks[0], self._ticks[-1]
        if not self.window_is_full(last.now):
            return
        name = self.situation.sink_class
        # A window without activity says that the last of it was before the window began.
        self.last_busy = last.now if name == "busy" else min(self.last_busy, first.now)
        self.last_lively = last.now if name in LIVELY else min(self.last_lively, first.now)
        if _unprobed(last) and (name == "busy" or _log_bytes(last.ranks) > _log_bytes(first.ranks)):
            # No steps, no counters: life itself is all there is to go by.
            self.last_progress = last.now

    def seconds(self, now: float) -> float:
        """Time without progress."""
        return now - self.last_progress

    def quiet_for(self, now: float) -> float:
        """Time without progress in which no awaited rank worked or polled either."""
        return now - max(self.last_progress, self.last_lively)

    def idle_for(self, now: float) -> float:
        """Time without progress in which no awaited rank worked; it may have polled."""
        return now - max(self.last_progress, self.last_busy)

    @property
    def some_are_done(self) -> bool:
        """Whether a rank has ended, or run its script to the end."""
        return any(not rank.alive or rank.returned for rank in self.ranks)

    @property
    def children_are_young(self) -> bool:
        """Whether a child process was started after the last progress: loader workers warm up."""
        born = [rank.youngest_child_born for rank in self.ranks if rank.youngest_child_born is not None]
        return bool(born) and max(born) > self.last_progress

    @property
    def ranks(self) -> tuple[RankObservation, ...]:
        """All ranks as last seen."""
        return self._ticks[-1].ranks if self._ticks else ()


def _moved(previous: Tick, tick: Tick) -> bool:
    before = {rank.rank: rank for rank in previous.ranks}
    return any(rank.rank in before and advanced(before[rank.rank], rank) for rank in tick.ranks)


def _unprobed(tick: Tick) -> bool:
    return not any(rank.probed for rank in tick.ranks)


def _log_bytes(ranks: tuple[RankObservation, ...]) -> int:
    return sum(rank.log_bytes for rank in ranks)
