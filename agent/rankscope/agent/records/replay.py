"""What was asked of the policy, stored with each decision, and asked again from a recorded event log. Pure.

A log must give the same counters and the same decisions as the live agent: what was decided can be understood
long after, and a policy that was changed can be tried on what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from rankscope.agent.failures.model import Failure
from rankscope.agent.policy import (
    History,
    Rules,
    decide_on_exit_hang,
    decide_on_failure,
    decide_on_hang,
    decide_on_left_workers,
    decide_on_restart_timeout,
    decide_on_stuck_agent,
    decide_on_stuck_kernel,
    decide_on_timer,
    decide_on_unknown_state,
    decide_on_worker_failure,
)
from rankscope.agent.records.past import Past
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import Event

Subject = Literal[
    "hang",
    "exit_hang",
    "failure",
    "worker_failure",
    "timer",
    "stuck_kernel",
    "left_workers",
    "unknown_state",
    "restart_timeout",
    "stuck_agent",
]


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question to the policy, but for the diagnosis, which lies with the incident.

    Attributes:
        about: which of the policy's functions was asked.
        seconds: without progress, or that a restart has taken; limit is what it may take.
        what: which timer, why nobody knows the workers' state, or what was decided and cannot be done.
        ranks: workers that could not be ended.
    """

    about: Subject
    history: History = msgspec.field(default_factory=History)
    rules: Rules = msgspec.field(default_factory=Rules)
    failure: Failure | None = None
    seconds: float = 0.0
    limit: float = 0.0
    what: str = ""
    signal_name: str = ""
    is_rank: bool = False
    ranks: tuple[int, ...] = ()


def decide(asked: Asked, diagnosis: Diagnosis | None, *, time: str) -> Decision | None:
    """Ask the policy; ``None`` when the diagnosis that it needs is not there."""
    if asked.about in _WITH_DIAGNOSIS:
        return _WITH_DIAGNOSIS[asked.about](asked, diagnosis, time) if diagnosis is not None else None
    return _OTHERS[asked.about](asked, diagnosis, time)


def differences(events: Sequence[Event], diagnoses: Mapping[str, Diagnosis]) -> Iterator[str]:
    """Where a log, asked again, gives other counters or decisions than it tells of; none for a log of ours.

    Args:
        events: of one node, in order.
        diagnoses: of the stored incidents.
    """
    past = Past()
    for event in events:
        if event.name == "decision" and "asked" in event.data:
            try:
                asked = msgspec.convert(event.data["asked"], Asked)
            except msgspec.ValidationError as error:
                yield f"event {event.number}: what was asked cannot be read: {error}"
                continue
            yield from _of_decision(event, asked, diagnoses.get(event.subject or ""), past)
        past.take(event)


def _of_decision(event: Event, asked: Asked, diagnosis: Diagnosis | None, past: Past) -> Iterator[str]:
    told = asked.history
    if asked.about == "worker_failure" and asked.failure is not None:
        now = past.worker_history(asked.failure.rank, asked.failure, allowed=told.restarts_allowed, workers=0)
    else:
        now = past.history(asked.failure, allowed=told.restarts_allowed, workers=told.workers)
    for name in _COUNTED if asked.about in _HAVE_HISTORY else ():
        was, gives = getattr(told, name), getattr(now, name)
        if was != gives:
            yield f"event {event.number}: {name} was {was}, the log gives {gives}"
    decision = decide(asked, diagnosis, time=event.time)
    if decision is None:
        yield f"event {event.number}: its diagnosis ({event.subject}) is not stored"
    elif (decision.action, decision.reason) != (event.data.get("action"), event.data.get("reason")):
        before = f"{event.data.get('action')}: {event.data.get('reason')}"
        yield f"event {event.number}: was {before!r}, is {f'{decision.action}: {decision.reason}'!r}"


_COUNTED: Final = ("restarts_used", "same_errors", "without_progress", "failed_workers")
_HAVE_HISTORY: Final = frozenset({"hang", "exit_hang", "failure", "worker_failure", "timer"})


def _timer(asked: Asked, diagnosis: Diagnosis | None, time: str) -> Decision:
    decision, _send = decide_on_timer(
        asked.what,
        signal_name=asked.signal_name,
        is_rank=asked.is_rank,
        history=asked.history,
        rules=asked.rules,
        time=time,
        incident=(diagnosis.incident if diagnosis is not None else None) or "",
    )
    return decision


def _worker_failure(asked: Asked, _diagnosis: Diagnosis | None, time: str) -> Decision | None:
    if asked.failure is None:
        return None
    return decide_on_worker_failure(asked.failure, asked.history, asked.rules, time=time)


_WITH_DIAGNOSIS: Final[Mapping[str, Callable[[Asked, Diagnosis, str], Decision]]] = {
    "hang": lambda asked, diagnosis, time: decide_on_hang(
        diagnosis, asked.history, asked.rules, silent_seconds=asked.seconds, time=time
    ),
    "exit_hang": lambda asked, diagnosis, time: decide_on_exit_hang(
        diagnosis, asked.history, asked.rules, silent_seconds=asked.seconds, time=time
    ),
}
_OTHERS: Final[Mapping[str, Callable[[Asked, Diagnosis | None, str], Decision | None]]] = {
    "failure": lambda asked, diagnosis, time: decide_on_failure(
        diagnosis, asked.failure, asked.history, asked.rules, time=time
    ),
    "worker_failure": _worker_failure,
    "timer": _timer,
    "stuck_kernel": lambda asked, diagnosis, time: decide_on_stuck_kernel(
        diagnosis, time=time, history=asked.history, rules=asked.rules
    ),
    "left_workers": lambda asked, _diagnosis, time: decide_on_left_workers(
        asked.ranks, time=time, history=asked.history, rules=asked.rules
    ),
    "unknown_state": lambda asked, _diagnosis, time: decide_on_unknown_state(reason=asked.what, time=time),
    "stuck_agent": lambda asked, _diagnosis, time: decide_on_stuck_agent(
        action=asked.what, seconds=asked.seconds, time=time
    ),
    "restart_timeout": lambda asked, _diagnosis, time: decide_on_restart_timeout(
        seconds=asked.seconds, limit=asked.limit, time=time
    ),
}
