"""A fake job for the detector: time is moved by hand, snapshots are taken at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rankscope.watchdog.detector import Detector
from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import (
    Capture,
    Captured,
    Confirmed,
    CycleStarted,
    Diagnosed,
    Instruction,
    RankObservation,
    Sample,
    Sampled,
    Tick,
    TimerExpired,
)
from rankscope.watchdog.page import GroupSeq

TICK = 0.5
Ranks = dict[int, RankObservation]


def a_rank(rank: int, *, step: int = 10, enqueued: int = 10, completed: int = 10) -> RankObservation:
    group = GroupSeq("0", 3, enqueued, completed)
    return RankObservation(rank=rank, probed=True, step=step, groups=(group,))


class Job:
    """A fake job of three ranks whose time moves tick by tick; snapshots are taken at once."""

    def __init__(self, settings: HangSettings | None = None, *, confidence: str = "high") -> None:
        self.detector = Detector(settings)
        self.now = 1000.0
        self.said: list[tuple[float, Instruction]] = []
        self.confidence = confidence
        self.hang = True
        self.healthy = False
        self.loops: frozenset[int] = frozenset()
        self.library_loops: frozenset[int] = frozenset()
        self.communicating: frozenset[int] = frozenset()
        self.ranks: Ranks = {rank: a_rank(rank) for rank in range(3)}
        self.detector.handle(CycleStarted(self.now))
        self.started = self.now

    def run(self, seconds: float, change: Callable[[Ranks], None] | None = None) -> None:
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            if change is not None:
                change(self.ranks)
            self._feed(self.detector.handle(Tick(self.now, tuple(self.ranks.values()))))

    def train(self, seconds: float) -> None:
        self.run(seconds, one_step)

    def _feed(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            self.said.append((self.now, instruction))
            if isinstance(instruction, Capture):
                captured = Captured(self.now, instruction.which, self.communicating)
                self._feed(self.detector.handle(captured))
            elif isinstance(instruction, Sample):
                self._feed(
                    self.detector.handle(
                        Sampled(self.now, self.communicating, self.loops, self.library_loops)
                    )
                )
            elif isinstance(instruction, Confirmed):
                event = Diagnosed(hang=self.hang, confidence=self.confidence, healthy=self.healthy)
                self.detector.handle(event)

    def expire_timer(self, rank: int) -> None:
        self._feed(self.detector.handle(TimerExpired(self.now, rank, "epoch")))

    def times_of(self, kind: type[Instruction]) -> list[float]:
        return [when - self.started for when, instruction in self.said if isinstance(instruction, kind)]

    @property
    def published(self) -> list[Instruction]:
        """All but the looks at working ranks, which nobody is told of."""
        return [instruction for _, instruction in self.said if not isinstance(instruction, Sample)]

    def last(self, kind: type[Confirmed]) -> Confirmed:
        return [instruction for _, instruction in self.said if isinstance(instruction, kind)][-1]


def one_step(ranks: Ranks) -> None:
    for rank, seen in list(ranks.items()):
        group = seen.groups[0]
        moved = group._replace(enqueued=group.enqueued + 1, completed=group.completed + 1)
        ranks[rank] = replace(
            seen,
            step=seen.step + 1,
            groups=(moved,),
            cpu_seconds=seen.cpu_seconds + 0.2,
            switches=seen.switches + 9,
        )


def wait_for(job: Job, culprit: int) -> None:
    """All but ``culprit`` enter the next collective and wait."""
    for rank, seen in list(job.ranks.items()):
        if rank != culprit:
            group = seen.groups[0]
            job.ranks[rank] = replace(seen, groups=(group._replace(enqueued=group.enqueued + 1),))


def working(rank: int) -> Callable[[Ranks], None]:
    def change(ranks: Ranks) -> None:
        ranks[rank] = replace(ranks[rank], cpu_seconds=ranks[rank].cpu_seconds + TICK)

    return change


def polling(rank: int) -> Callable[[Ranks], None]:
    def change(ranks: Ranks) -> None:
        ranks[rank] = replace(ranks[rank], switches=ranks[rank].switches + 10)

    return change
