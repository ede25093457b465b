"""Counts what ``/metrics`` tells of a job, from the node's own events. Pure.

As with the policy's counters (``past``) it is one code for what happens and for what is stored: an agent that
is started again under the same run id feeds it the events that are there, and goes on counting. Nothing is
ever forgotten but by the records being removed; a reader sees a counter that began anew then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, get_args

from rankscope.agent.health.tallies import DETECTION_BOUNDS, Durations, IncidentTally, Tallies
from rankscope.diag.model import Kind, Verdict
from rankscope.diag.store.events import TYPE_PREFIX, Event

RestartReason = Literal["hang", "failure", "membership"]
RESTART_REASONS: Final[tuple[RestartReason, ...]] = get_args(RestartReason)
_VERDICTS: Final = frozenset(get_args(Verdict))
_KINDS: Final = frozenset(get_args(Kind))
_KEPT_INCIDENTS: Final = 256
"""Ids that are remembered, so that an incident of which more is said counts once."""


class EventTallies:
    """The counters that events move. One thread at a time (the ledger's lock)."""

    def __init__(self) -> None:
        self._incidents: Counter[tuple[str, str]] = Counter()
        self._restarts: Counter[str] = Counter(dict.fromkeys(RESTART_REASONS, 0))
        self._known: deque[str] = deque(maxlen=_KEPT_INCIDENTS)
        self._handlers: dict[str, Callable[[Event], None]] = {
            "incident.confirmed": self._confirmed,
            "slow": self._slow,
            "worker.failed": self._failed,
            "restart.begun": self._restart,
        }
        self._detections = Durations.none(DETECTION_BOUNDS)

    @classmethod
    def of(cls, events: Iterable[Event]) -> EventTallies:
        """What a node's events amount to, in their order."""
        tallies = cls()
        for event in events:
            tallies.take(event)
        return tallies

    def now(self, *, captures: Durations, timer_requests: int) -> Tallies:
        """All that is counted, with what no event tells.

        Args:
            captures: how long looks at the ranks took.
            timer_requests: timers set and released.
        """
        return Tallies(
            incidents=tuple(IncidentTally(*what, count) for what, count in self._incidents.items()),
            restarts=dict(self._restarts),
            detections=self._detections,
            captures=captures,
            timer_requests=timer_requests,
        )

    def take(self, event: Event) -> None:
        """Count one event, of the live agent or of one before it."""
        handler = self._handlers.get(event.name) if event.type.startswith(TYPE_PREFIX) else None
        if handler is not None:
            handler(event)

    def _confirmed(self, event: Event) -> None:
        if self._is_new(event.subject):
            self._count(event.data, otherwise="none")
            seconds = event.data.get("seconds")
            if isinstance(seconds, int | float):
                self._detections = self._detections.plus(seconds)

    def _slow(self, event: Event) -> None:
        # Steps that take longer on all ranks alike are told without an incident.
        if event.subject is not None and self._is_new(event.subject):
            self._count(event.data, otherwise="none")

    def _failed(self, event: Event) -> None:
        # Several workers of one failure have one incident between them; without one the root stands for them.
        is_counted = event.data.get("root") is True if event.subject is None else self._is_new(event.subject)
        if is_counted:
            self._incidents["Exited", "dead"] += 1

    def _count(self, data: Mapping[str, object], *, otherwise: str) -> None:
        verdict, kind = str(data.get("verdict", "")), str(data.get("kind", ""))
        known = verdict if verdict in _VERDICTS else "Unknown"
        self._incidents[known, kind if kind in _KINDS else otherwise] += 1

    def _is_new(self, incident: str | None) -> bool:
        if incident is None:
            return True
        if incident in self._known:
            return False
        self._known.append(incident)
        return True

    def _restart(self, event: Event) -> None:
        self._restarts[restart_reason(event.data)] += 1


def restart_reason(record: Mapping[str, object]) -> RestartReason:
    """Why workers were started again, in one of three words.

    Args:
        record: fields of a ``RestartRecord``.
    """
    if record.get("is_counted") is False:
        return "membership"
    # A failure's record has its exit code there, or nothing; a decision about a hang the last verdict.
    is_hang = record.get("error_code") in _VERDICTS and not record.get("identity")
    return "hang" if is_hang else "failure"
