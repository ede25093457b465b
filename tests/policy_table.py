"""The table of decisions (``tests/data/policy.toml``): its rows, its cells, and what the code says to a cell.

A cell is one value for each axis of a question. ``cells`` walks over all combinations that ``_PLANS`` names,
``Question.row`` finds the row that holds for a cell, ``decide`` puts the cell into a diagnosis, a history and
rules, and asks the code. Nothing here decides anything.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from rankscope.agent import policy
from rankscope.agent.failures.model import Failure
from rankscope.agent.policy import History, Rules
from rankscope.agent.settings.values import ExecutionMode, FaultTolerantPolicy, Isolation, OnHang
from rankscope.diag.model import Confidence, Decision, Diagnosis, Evidence, RankFinding, Severity, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE: Final = Path(__file__).parent / "data" / "policy.toml"
SUMMARY: Final = "rank 1 is stuck in read_shard (train.py:46), data loading"
NOW: Final = "2026-11-29T16:40:00.000Z"
Cell: TypeAlias = Mapping[str, str]
_DIAGNOSIS: Final = ("verdict", "severity", "confidence")
_SIX: Final = (*_DIAGNOSIS, "mode", "policy", "restarts")
_PLANS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "hang": (
        (*_SIX, "on_hang"),
        (*_SIX, "isolate", "room"),
        ("verdict", "policy", "restarts", "on_hang", "interval", "trained", "named", "stalled"),
        ("cause", "severity", "confidence", "named", "restarts", "isolate", "room", "stalled"),
        ("situation", "verdict", "mode", "policy", "restarts", "on_hang", "interval", "trained"),
    ),
    "failure": (
        (*_SIX, "root"),
        ("mode", "policy", "restarts", "root", "repeated", "many", "stalled", "role", "blocked"),
    ),
}
"""The axes that are combined in full; the others have their first value. Without a plan: all axes."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: for which cells it holds, and what is expected there."""

    when: dict[str, str | list[str]]
    action: str
    says: str
    code: int | None = None
    send: bool = False
    spec: str = ""
    open: str = ""

    def holds(self, cell: Cell) -> bool:
        """Whether every axis that it names has one of its values."""
        for axis, wanted in self.when.items():
            value = cell[axis]
            if value != wanted if isinstance(wanted, str) else value not in wanted:
                return False
        return True


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table: what a decision depends on, and the rows in their order."""

    title: str
    axes: dict[str, list[str]]
    row: list[Row]

    def index(self, cell: Cell) -> int | None:
        """The number of the first row that holds, ``None`` when none does."""
        return next((number for number, row in enumerate(self.row) if row.holds(cell)), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the code says."""

    decision: Decision
    send: bool = False


@cache
def questions() -> dict[str, Question]:
    """The tables by name."""
    return msgspec.convert(tomllib.loads(TABLE.read_text()), dict[str, Question])


def cells(name: str) -> Iterator[Cell]:
    """All cells of a table, each once."""
    axes = questions()[name].axes
    seen: set[tuple[str, ...]] = set()
    for plan in _PLANS.get(name, (tuple(axes),)):
        columns = [values if axis in plan else values[:1] for axis, values in axes.items()]
        for values in itertools.product(*columns):
            cell = dict(zip(axes, values, strict=True))
            if values not in seen and _can_be(name, cell):
                seen.add(values)
                yield cell


def _can_be(name: str, cell: Cell) -> bool:
    if name == "hang" and cell["cause"] != "other":
        # A rank that cannot run is RankNonCommHang (DIAGNOSIS.md, rule 2).
        return cell["verdict"] == "RankNonCommHang" and cell["named"] != "nobody"
    if name == "failure" and cell["mode"] == "Async":
        # One worker's end is told by its own end, and nobody looks at the others.
        return cell["root"] != "untold" and cell["blocked"] == "no"
    return True


def decide(name: str, cell: Cell) -> Answer:
    """What the code says to a cell."""
    if name == "timer":
        return _timer(cell)
    asked = {"hang": _hang, "failure": _failure, "device": _device, "agent": _agent}[name]
    return Answer(asked(cell))


def _hang(cell: Cell) -> Decision:
    ask = policy.decide_on_hang if cell["situation"] == "hang" else policy.decide_on_exit_hang
    diagnosis = a_diagnosis(*(cell[axis] for axis in _DIAGNOSIS), named=cell["named"], cause=cell["cause"])
    return ask(diagnosis, a_history(cell), rules_of(cell), silent_seconds=200.0, time=NOW)


def _failure(cell: Cell) -> Decision:
    history, rules = a_history(cell), rules_of(cell)
    if cell["mode"] == "Async":
        return policy.decide_on_worker_failure(a_failure(cell), history, rules, time=NOW)
    cause = "blocked" if cell["blocked"] == "yes" else "other"
    diagnosis = a_diagnosis(*(cell[axis] for axis in _DIAGNOSIS), named="one node", cause=cause)
    failure = a_failure(cell) if cell["root"] != "untold" else None
    return policy.decide_on_failure(diagnosis, failure, history, rules, time=NOW)


def _device(cell: Cell) -> Decision:
    history, rules = a_history(cell), rules_of(cell)
    if cell["situation"] == "left behind":
        return policy.decide_on_left_workers((1,), time=NOW, history=history, rules=rules)
    return policy.decide_on_stuck_kernel(None, time=NOW, history=history, rules=rules)


def _agent(cell: Cell) -> Decision:
    if cell["situation"] == "UNKNOWN state":
        return policy.decide_on_unknown_state(reason="the store is gone", time=NOW)
    if cell["situation"] == "stuck agent":
        return policy.decide_on_stuck_agent(action="restart", seconds=61.0, time=NOW)
    return policy.decide_on_restart_timeout(seconds=95.0, limit=90.0, time=NOW)


def _timer(cell: Cell) -> Answer:
    decision, send = policy.decide_on_timer(
        "timer 'epoch' of process 7 (rank 1)",
        signal_name="SIGKILL",
        is_rank=cell["setter"] == "rank",
        history=a_history(cell),
        rules=rules_of(cell),
        time=NOW,
        incident="one",
    )
    return Answer(decision, send)


@cache
def a_diagnosis(
    verdict: str, severity: str, confidence: str, *, named: str = "one node", cause: str = "other"
) -> Diagnosis:
    """A diagnosis with nothing in it but what decides."""
    culprits, nodes = {
        "one node": ((1,), ("host-a",)),
        "two nodes": ((1, 3), ("host-a", "host-b")),
        "nobody": ((), ()),
    }[named]
    state = {"blocked": "D (blocked in the kernel)", "stopped": "T (stopped by a signal)"}.get(cause)
    return Diagnosis(
        job="job",
        time=NOW,
        world_size=4,
        observed="0-3",
        verdict=cast("Verdict", verdict),
        kind="data_loading" if state is None else "frozen",
        severity=cast("Severity", severity),
        confidence=cast("Confidence", confidence),
        culprits=culprits,
        nodes=nodes,
        summary=SUMMARY,
        location=None,
        rule="8" if state is None else "2",
        evidence=() if state is None else (Evidence("/proc", f"state {state}", 1),),
        ranks=(RankFinding(0, "host-a", 7, "exited", "bystander"),),
        incident="incident-1",
    )


def a_failure(cell: Cell) -> Failure:
    """The root failure of a cell."""
    retryable = cell["root"] == "retryable"
    return Failure(
        rank=1,
        local_rank=1,
        node="host-a",
        role="ps" if cell["role"] == "critical" else "worker",
        exit_code=1,
        message="ConnectionError: closed by peer" if retryable else "ValueError: no such column",
        identity="error",
        source="log",
        retryable=retryable,
        because="known to pass: connection closed" if retryable else "ValueError is an error of the program",
        at=0.0,
    )


def a_history(cell: Cell) -> History:
    """The history of a cell; what it has no axis for is harmless."""
    used, allowed = {"left": (1, 3), "used up": (3, 3), "forbidden": (1, 3), "none": (0, 0)}[cell["restarts"]]
    return History(
        restarts_used=used,
        restarts_allowed=allowed,
        same_errors=11 if cell.get("repeated") == "yes" else 10,
        without_progress=3 if cell.get("stalled") == "yes" else 2,
        failed_workers=3 if cell.get("many") == "yes" else 2,
        workers=4,
        progress_seen=cell.get("trained") != "no",
        interval_given=cell.get("interval") == "given",
    )


def rules_of(cell: Cell) -> Rules:
    """The rules of a cell."""
    isolate: Isolation = {"True": True, "False": False}.get(cell.get("isolate", "auto"), "auto")
    return Rules(
        on_hang=cast("OnHang", cell.get("on_hang", "auto")),
        execution_mode=cast("ExecutionMode", cell.get("mode", "Sync")),
        restart_enabled=cell["restarts"] not in ("forbidden", "none"),
        fault_tolerant_policy=cast("FaultTolerantPolicy", cell["policy"]),
        max_failure_rate=0.5,
        isolate_nodes=isolate,
        nodes_have_room=cell.get("room") == "yes",
    )
