"""The time of one launch after the other, divided into stages that add up to it. Pure: times come in.

Told which stage begins when, by threads that see things a little apart: the order of the calls may differ
from that of the times, and nothing of the time between begin and end is ever lost or counted twice. Times are
kept in whole milliseconds, so that the sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rankscope.diag.store.launches import STAGES, Stage

_RUNNING: Final[frozenset[Stage]] = frozenset({"first_step", "training"})
_SILENT: Final[frozenset[Stage]] = frozenset({"hang_unnoticed", "collection", "analysis"})
_PER_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """One cycle that has ended, or as far as it has come.

    Attributes:
        began_ms: when, in the clock's time; ended_ms likewise.
        milliseconds: by stage, every stage; they add up to the time between.
    """

    began_ms: int
    ended_ms: int
    milliseconds: Mapping[Stage, int]

    @property
    def duration(self) -> float:
        """Seconds from begin to end."""
        return (self.ended_ms - self.began_ms) / _PER_SECOND

    @property
    def seconds(self) -> dict[Stage, float]:
        """Seconds by stage."""
        return {stage: self.milliseconds[stage] / _PER_SECOND for stage in STAGES}


class CycleClock:
    """Divides the time of an agent into cycles, and that of a cycle into stages.

    A cycle begins with the first stage that is entered, ends at the next ``rendezvous``, and at ``end``.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, Stage]] = []

    @property
    def stage(self) -> Stage | None:
        """The present stage, ``None`` between cycles."""
        return self._marks[-1][1] if self._marks else None

    def enter(self, stage: Stage, at: float) -> Span | None:
        """A stage begins.

        Args:
            stage: which. ``hang_unnoticed`` may begin in the past: it reaches back over what seemed to be
                ``first_step`` or ``training``, and not into what is noticed already. Of ``stopping`` only
                ``rendezvous`` leads out.
            at: when, seconds of a monotonic clock.

        Returns:
            The cycle that this ends, ``None`` when it goes on.
        """
        now = round(at * _PER_SECOND)
        before = self.stage
        if stage == "rendezvous" and before not in (None, "rendezvous"):
            ended = self._end(now)
            self._marks = [(ended.ended_ms, stage)]
            return ended
        if before is None:
            self._marks = [(now, stage)]
        elif stage == "hang_unnoticed":
            self._reach_back(now)
        elif before not in ("stopping", stage):
            self._marks.append((max(now, self._marks[-1][0]), stage))
        return None

    def progressed(self, at: float) -> bool:
        """A step or a collective was made; whether it was the first of the cycle."""
        if self.stage != "first_step":
            return False
        self.enter("training", at)
        return True

    def cleared(self) -> None:
        """The suspicion was wrong: its time belongs to what was going on before."""
        while len(self._marks) > 1 and self._marks[-1][1] in _SILENT:
            del self._marks[-1]

    def recovered(self, at: float) -> None:
        """A hang went away by itself; its time is lost, and training goes on."""
        if self.stage in _SILENT:
            self.enter("training", at)

    def end(self, at: float) -> Span | None:
        """The cycle ends; ``None`` when none is under way."""
        if not self._marks:
            return None
        ended = self._end(round(at * _PER_SECOND))
        self._marks = []
        return ended

    def so_far(self, at: float) -> Span | None:
        """The present cycle as if it ended now."""
        return self._end(round(at * _PER_SECOND)) if self._marks else None

    def silent_since(self, at: float) -> float:
        """When the last progress was: the end of the last ``training`` or ``first_step``."""
        since = at
        for begin, stage in reversed(self._marks):
            if stage in _RUNNING:
                return since
            since = begin / _PER_SECOND
        return since

    def _reach_back(self, now: int) -> None:
        if self.stage not in _RUNNING:
            return  # noticed already, being stopped, or nothing that could hang
        while len(self._marks) > 1 and self._marks[-1][0] >= now and self._marks[-2][1] in _RUNNING:
            del self._marks[-1]
        begin = self._marks[-1][0]
        if begin >= now:
            self._marks[-1] = (begin, "hang_unnoticed")  # nothing of that stage is left
        else:
            self._marks.append((now, "hang_unnoticed"))

    def _end(self, now: int) -> Span:
        ended = max(now, self._marks[-1][0])
        spent = dict.fromkeys(STAGES, 0)
        ends = [begin for begin, _stage in self._marks[1:]] + [ended]
        for (begin, stage), end in zip(self._marks, ends, strict=True):
            spent[stage] += end - begin
        return Span(self._marks[0][0], ended, spent)
