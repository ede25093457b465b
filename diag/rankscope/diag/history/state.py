"""How a job stands, by what its nodes' records say. Pure. The one place that decides it.

Who lives decides first, then whether an agent may still run on another host, then ``job.json``, then the
last words of the nodes: ``job.json`` has what one of them wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from rankscope.diag.history.read import JobRecords, NodeRecords
from rankscope.diag.history.runs import AgentLife
from rankscope.diag.store.events import unix_time
from rankscope.diag.store.job import JobFile

JobState = Literal["running", "ended", "killed", "silent", "damaged"]
"""``killed``: its agents are gone without a last word. ``silent``: another host runs it, or did; from here
nobody can tell. ``damaged``: what is stored does not say."""
QUIET: Final = 86400.0
"""Seconds after its last sign of life from which on an agent of another host counts as gone."""


class NodeState(msgspec.Struct, frozen=True):
    """What one node's records say of the last job of a run id.

    Attributes:
        heard: unix time of its last sign of life, ``None`` when it left none.
        lives: whether its agent runs on this host now (pid and start time).
        here: whether its records are of this host since it was started: one that does not live is dead.
        result: what came of the job by its ``job.ended``, ``None`` without one; ended is when.
        exit_code: of the agent, by the same event.
        began: when its first agent started (ISO 8601).
        restarts: restarts of the job that it has counted.
        is_watch: whether a ``diag watch`` beside an agent wrote it.
    """

    node: str
    heard: float | None = None
    lives: bool = False
    here: bool = False
    result: str | None = None
    exit_code: int | None = None
    ended: str | None = None
    began: str | None = None
    restarts: int = 0
    is_watch: bool = False


def state_of(
    job: JobFile | None, nodes: Sequence[NodeState], *, now: float
) -> tuple[JobState, str, str | None]:
    """The state of a job, what came of it, and when it ended.

    Args:
        job: ``job.json``, ``None`` when it cannot be read.
        nodes: those with records.
        now: unix time.
    """
    agents = [node for node in nodes if not node.is_watch] or list(nodes)
    if any(node.lives for node in agents):
        return "running", "", None
    if any(_may_run(node, now) for node in agents):
        return "silent", "", None
    if job is not None and job.ended is not None:
        return "ended", job.result, job.ended
    if not agents:
        return "damaged", "", None
    known = [node for node in agents if node.result is not None]
    if len(known) == len(agents):
        last = max(known, key=lambda node: node.ended or "")
        return "ended", last.result or "", last.ended
    if all(node.here or node.result is not None for node in agents):
        return "killed", "", None
    return "silent", "", None


def _may_run(node: NodeState, now: float) -> bool:
    """Whether an agent that has not said its last word may still run on another host."""
    if node.here or node.result is not None:
        return False
    return node.heard is None or now - node.heard < QUIET


def state_of_records(records: JobRecords, *, now: float) -> tuple[JobState, str, str | None]:
    """Likewise, of all records of a job."""
    return state_of(records.job, [_node(one) for one in records.nodes if one.events], now=now)


def with_last_words(state: NodeState, last: AgentLife) -> NodeState:
    """The state of a node with what its last agent said at its end."""
    if last.ended is None:
        return state
    code = last.ended.data.get("exit_code")
    return msgspec.structs.replace(
        state,
        result=str(last.ended.data.get("result", "")),
        exit_code=code if isinstance(code, int) else None,
        ended=last.ended.time,
    )


def _node(records: NodeRecords) -> NodeState:
    state = NodeState(
        records.node,
        heard=unix_time(records.events[-1].time),
        lives=records.now is not None,
        here=records.here,
        is_watch=records.is_watch,
    )
    return with_last_words(state, records.jobs[-1][-1])
