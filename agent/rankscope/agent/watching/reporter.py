"""What the watch thread tells the rest of the agent. No behaviour here: the session has it."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.agent.nodes.messages import Ruling
from rankscope.diag.classify import Slowdown
from rankscope.diag.model import Diagnosis
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.observations import ActDue, Cleared, Confirmed, Recovered, Suspected


@dataclass(frozen=True, slots=True)
class TimerSignal:
    """What an expired timer asked for.

    Attributes:
        pid: process that set it.
        rank: the rank that this process is or descends from, -1 for none.
        scope: its name.
        number: the signal.
    """

    pid: int
    rank: int
    scope: str
    number: int


class Reporter:
    """Called in the watch thread; every method returns soon."""

    def on_tick(self, now: float, detector: Detector) -> None:
        """Once a tick, with or without workers."""

    def on_suspected(self, incident: str, suspected: Suspected) -> None:
        """A limit was passed; snapshots are about to be taken."""

    def on_stopped(self, *, seconds: float, continued: bool) -> None:
        """All workers have been stopped by a signal for ``seconds``, or run again after them."""

    def on_cleared(self, incident: str, cleared: Cleared) -> None:
        """The suspicion is dropped."""

    def on_diagnosed(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        """A confirmed hang has a stored diagnosis."""

    def on_timer_due(self, timer: TimerSignal, incident: str) -> None:
        """Evidence of an expired timer is stored: decide, and send the signal it asked for last of all."""

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        """A published hang went away by itself."""

    def on_slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, *, seconds: float) -> None:
        """Something is slow, or steps take longer and nobody is to blame; ``seconds`` since that began."""

    def on_slow_no_more(self, diagnosis: Diagnosis, reason: str) -> None:
        """What was told to be slow is over; why it is known is a phrase."""

    def on_ruled(self, ruling: Ruling) -> None:
        """Another node's agent has decided for the whole job."""

    def tell(self, text: str) -> None:
        """Say something to the person who reads along."""

    def on_act_due(self, diagnosis: Diagnosis, due: ActDue, *, progress_seen: bool) -> None:
        """The act-after limit has passed; ``progress_seen`` says whether the workers ever trained."""
