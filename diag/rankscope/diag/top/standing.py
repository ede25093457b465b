"""What the agent has said of a job last: who is suspected, who hangs, who waits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankscope.diag.model import RankState
from rankscope.diag.store.events import Event

_OVER = frozenset({"cleared", "incident.recovered", "cycle.started", "restart", "job.started"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds now.

    Attributes:
        states: of the ranks that were named.
        word: a sentence; ``""`` when all is well.
        is_alarm: whether it is bad news.
        restarts: counted by the agent.
    """

    states: Mapping[int, RankState]
    word: str = ""
    is_alarm: bool = False
    restarts: int = 0


def standing_of(events: Iterable[Event]) -> Standing:
    """What the events of a job, in their order, leave standing."""
    found = Standing({})
    for event in events:
        found = _after(found, event)
    return found


def _after(before: Standing, event: Event) -> Standing:
    data = event.data
    restarts = _number(data.get("restarts") or data.get("restart_count"), before.restarts)
    if event.name == "incident.recovered" and "reason" in data and "slow" not in before.states.values():
        return before  # what was slow is so no more: of a suspicion it says nothing
    if event.name in _OVER:
        return Standing({}, restarts=restarts)
    if event.name == "suspected":
        states = _states(data.get("waiting"), "waiting") | _states(data.get("ranks"), "suspected")
        return Standing(states, f"suspected: {data.get('reason', '')}", True, before.restarts)
    if event.name == "incident.confirmed":
        states = _states([rank for rank, state in before.states.items() if state == "waiting"], "waiting")
        states |= _states(data.get("culprits"), "hung")
        return Standing(states, _verdict(data), True, before.restarts)
    if event.name == "slow" and data.get("verdict") != "Healthy":  # else all ranks are slower alike
        return Standing(_states(data.get("culprits"), "slow"), _verdict(data), True, before.restarts)
    if event.name in ("stopping", "restart.begun"):
        return Standing(before.states, f"restarting: {data.get('reason', '')}", True, restarts)
    if event.name == "job.ended":
        return Standing({}, f"the job has ended: {data.get('result', '')}", False, before.restarts)
    return before


def _verdict(data: dict[str, object]) -> str:
    return f"{data.get('verdict', 'Unknown')}: {data.get('summary', '')}"


def _states(ranks: object, state: RankState) -> dict[int, RankState]:
    if not isinstance(ranks, list):
        return {}
    return {rank: state for rank in ranks if isinstance(rank, int)}


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
