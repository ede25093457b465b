"""The cycles of one agent: which stage its workers are in, told by several threads, and what each cycle was.

The arithmetic is ``CycleClock``'s (pure); here are the lock, the counting over the lives of an agent, and the
record that a cycle leaves. It reads no clock and writes no file.
"""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from rankscope.diag.history.stages import CycleClock, Span
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.launches import Cycle, Stage

RUNNING: Final = "running"
_BEFORE: Final[tuple[Stage, ...]] = ("rendezvous", "start")
_LAUNCH: Final = frozenset((*_BEFORE, "first_step"))


class Cycles:
    """Thread-safe; ``at`` is monotonic seconds everywhere, ``now`` is unix seconds.

    Args:
        node: this agent's node.
        past: cycles that earlier agents of this node have recorded.
    """

    def __init__(self, node: str, *, past: int = 0) -> None:
        self._lock = threading.Lock()
        self._clock = CycleClock()
        self._open = Cycle(number=past, node=node, began="")

    @property
    def number(self) -> int:
        """Number of the present or last cycle."""
        return self._open.number

    def start(self, at: float) -> dict[str, object]:
        """When the present cycle began, and what went into it before its workers ran."""
        with self._lock:
            span = self._clock.so_far(at)
            began: dict[str, object] = {"began": self._open.began}
            return began if span is None else {**began, **{name: span.seconds[name] for name in _BEFORE}}

    def enter(self, stage: Stage, at: float, *, now: float) -> Cycle | None:
        """A stage begins; returns the cycle that this ends. Between cycles only a launch begins one.

        Args:
            stage: which; those that follow a launch tell nothing once its workers are done.
            at: when.
            now: the unix time of ``at``.
        """
        with self._lock:
            was_open = self._clock.stage is not None
            if not was_open and stage not in _LAUNCH:
                return None
            ended = self._clock.enter(stage, at)
            done = self._close(ended, now, "restarted") if ended is not None else None
            if ended is not None or not was_open:
                self._open = Cycle(number=self._open.number + 1, node=self._open.node, began=iso_time(now))
            return done

    def silent(self, at: float, *, seconds: float) -> None:
        """A suspicion: nothing has progressed for ``seconds``, and evidence is being taken."""
        with self._lock:
            if self._clock.stage is not None:
                self._clock.enter("hang_unnoticed", at - seconds)
                self._clock.enter("collection", at)

    def launched(
        self, at: float, *, restart_count: int, world_size: int, ranks: tuple[int, ...], now: float
    ) -> Cycle | None:
        """The workers run; where no rendezvous was seen, that ends the cycle of those before them."""
        again = self.end(at, result="restarted", now=now) if self._open.result == RUNNING else None
        done = self.enter("first_step", at, now=now) or again
        with self._lock:
            self._open = msgspec.structs.replace(
                self._open, restart_count=restart_count, world_size=world_size, ranks=ranks, result=RUNNING
            )
        return done

    def ranks_are(self, *, world_size: int, ranks: tuple[int, ...]) -> None:
        """The ranks of the present cycle are known better than when it was launched."""
        with self._lock:
            self._open = msgspec.structs.replace(self._open, world_size=world_size, ranks=ranks)

    def progressed(self, at: float, *, steps: int = 0, step: int | None = None) -> bool:
        """Something has progressed; whether it was the first of this cycle.

        Args:
            at: when.
            steps: optimizer steps of the rank that made most, in this cycle.
            step: number that the script gave its last step, ``None`` when it gives none.
        """
        with self._lock:
            old = self._open
            steps = max(steps, old.steps)
            step = max((one for one in (step, old.step) if one is not None), default=None)
            if (steps, step) != (old.steps, old.step):
                self._open = msgspec.structs.replace(old, steps=steps, step=step)
            return self._clock.progressed(at)

    def cleared(self) -> None:
        """The suspicion was wrong."""
        with self._lock:
            self._clock.cleared()

    def recovered(self, at: float) -> None:
        """A hang went away by itself."""
        with self._lock:
            self._clock.recovered(at)

    def because(self, reason: str, incident: str | None) -> None:
        """Why the present cycle will end; the first word on it stands unless there is an incident later."""
        with self._lock:
            if not self._open.reason or (incident and not self._open.incident):
                self._open = msgspec.structs.replace(self._open, reason=reason, incident=incident)

    def end(self, at: float, *, result: str, now: float) -> Cycle | None:
        """The cycle ends, and no other begins; ``None`` when none is under way."""
        with self._lock:
            ended = self._clock.end(at)
            return self._close(ended, now, result) if ended is not None else None

    def silent_since(self, at: float) -> float:
        """When the present cycle last progressed, monotonic seconds; ``at`` when none is under way."""
        with self._lock:
            return self._clock.silent_since(at)

    def _close(self, span: Span, now: float, result: str) -> Cycle:
        closed = msgspec.structs.replace(
            self._open, ended=iso_time(now), duration=span.duration, result=result, **span.seconds
        )
        self._open = closed
        return closed
