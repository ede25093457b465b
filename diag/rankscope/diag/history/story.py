"""The history of a job, put together from its records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rankscope.diag.history.cycles import RUNNING, NodeTime, time_of
from rankscope.diag.history.model import Fault, JobHistory, SettingInForce, Spent
from rankscope.diag.history.moments import moments_of
from rankscope.diag.history.read import JobRecords, NodeRecords
from rankscope.diag.history.restarts import NodeRestarts, in_order, joined, restarts_of
from rankscope.diag.history.runs import AgentLife
from rankscope.diag.store.events import Event


@dataclass(frozen=True, slots=True)
class _Node:
    """What one node tells of the job that is shown."""

    records: NodeRecords
    lives: list[AgentLife]

    @property
    def is_dead(self) -> bool:
        return self.records.here and self.records.now is None

    @property
    def events(self) -> list[Event]:
        return [event for life in self.lives for event in life.events]


def history_of(records: JobRecords, *, unfold: bool = False) -> JobHistory:
    """What a job has been through.

    Args:
        records: what is stored of it.
        unfold: every fault, every node's record and every event for itself, and the earlier jobs of the same
            run id too.
    """
    nodes, earlier = _nodes(records, everything=unfold)
    history = _history(records, nodes, earlier, unfold=unfold)
    moments = moments_of(
        {name: node.lives for name, node in nodes.items()},
        records.diagnoses,
        records.decisions,
        dead=[name for name, node in nodes.items() if node.is_dead and not node.records.is_watch],
        unfold=unfold,
    )
    settings = _settings(node for node in nodes.values() if not node.records.is_watch)
    return msgspec.structs.replace(history, moments=moments, settings=settings)


def history_and_events(
    records: JobRecords, *, unfold: bool = False
) -> tuple[JobHistory, dict[str, list[Event]]]:
    """The same, with the events that it is made of, by node, and without moments and settings."""
    nodes, earlier = _nodes(records, everything=unfold)
    history = _history(records, nodes, earlier, unfold=unfold)
    return history, {name: node.events for name, node in nodes.items()}


def _history(records: JobRecords, nodes: Mapping[str, _Node], earlier: int, *, unfold: bool) -> JobHistory:
    agents = {name: node for name, node in nodes.items() if not node.records.is_watch}
    times = {name: _time(name, node) for name, node in agents.items()}
    restarts = {name: restarts_of(name, node.events) for name, node in agents.items()}
    created, ended, result = _span(records, agents)
    return JobHistory(
        job=records.run_id,
        created=created,
        ended=ended,
        result=result,
        command=records.job.command if records.job is not None else _command(agents.values()),
        asked_nodes=records.job.nodes if records.job is not None else "",
        nodes=tuple(nodes),
        world_size=_world_size(records, times.values()),
        wall=max((each.wall_ms for each in times.values()), default=0) / 1000,
        lost=max((each.wall_ms - each.milliseconds["training"] for each in times.values()), default=0) / 1000,
        spent=tuple(_spent(times)),
        cycles=tuple(cycle for each in times.values() for cycle in each.cycles),
        restarts=joined(restarts, unfold=unfold),
        faults=_last_faults(restarts),
        moments=(),
        settings=(),
        earlier=earlier,
        warnings=(*records.warnings, *_warnings(records, nodes, times, restarts)),
    )


def _nodes(records: JobRecords, *, everything: bool) -> tuple[dict[str, _Node], int]:
    """The nodes of the last job of this run id, and how many jobs were before it."""
    since = records.job.created if records.job is not None else ""
    found: dict[str, _Node] = {}
    earlier = 0
    for node in records.nodes:
        jobs = node.jobs
        if everything:
            found[node.node] = _Node(node, [life for job in jobs for life in job])
            continue
        earlier = max(earlier, len(jobs) - 1)
        if jobs and jobs[-1][-1].events[-1].time >= since:
            found[node.node] = _Node(node, jobs[-1])
    if records.nodes and not found:  # clocks of hosts are far apart: better all of them than none
        return _nodes(JobRecords(records.run_id, nodes=records.nodes), everything=everything)
    return found, earlier


def _time(name: str, node: _Node) -> NodeTime:
    return time_of(name, node.lives, now=node.records.now, dead=node.is_dead)


def _span(records: JobRecords, nodes: Mapping[str, _Node]) -> tuple[str | None, str | None, str]:
    """Begin and end of the job, and what came of it."""
    begins = [node.lives[0].events[0].time for node in nodes.values() if node.lives]
    created = records.job.created if records.job is not None else min(begins, default=None)
    if any(node.records.now is not None for node in nodes.values()):
        return created, None, RUNNING
    ends = [node.lives[-1].ended for node in nodes.values() if node.lives]
    if records.job is not None and records.job.ended is not None:
        return created, records.job.ended, records.job.result
    known = [end for end in ends if end is not None]
    if ends and len(known) == len(ends):
        last = max(known, key=lambda end: end.time)
        return created, last.time, str(last.data.get("result", ""))
    is_dead = bool(nodes) and all(node.is_dead or node.lives[-1].ended for node in nodes.values())
    return created, None, "killed" if is_dead else ""


def _command(nodes: Iterable[_Node]) -> tuple[str, ...]:
    for node in nodes:
        for event in node.events:
            words = event.data.get("command")
            if isinstance(words, list) and event.name == "job.started":
                return tuple(map(str, words))
    return ()


def _world_size(records: JobRecords, times: Iterable[NodeTime]) -> int:
    sizes = [cycle.world_size for each in times for cycle in each.cycles]
    return max(sizes, default=records.job.world_size if records.job is not None else 0)


def _spent(times: Mapping[str, NodeTime]) -> Iterable[Spent]:
    for name, each in times.items():
        for cause, milliseconds in each.milliseconds.items():
            yield Spent(name, cause, milliseconds / 1000)


def _last_faults(restarts: Mapping[str, NodeRestarts]) -> tuple[Fault, ...]:
    """What failed, and no restart followed."""
    return in_order([fault for each in restarts.values() for fault in each.faults.get(None, [])])


def _settings(nodes: Iterable[_Node]) -> tuple[SettingInForce, ...]:
    """The settings of the agent that was started last of those that recorded theirs."""
    starts = [event for node in nodes for event in node.events if event.name == "job.started"]
    told = [event for event in starts if isinstance(event.data.get("settings"), dict)]
    if not told:
        return ()
    settings = max(told, key=lambda event: event.time).data["settings"]
    return (
        tuple(_setting(str(name), one) for name, one in settings.items())
        if isinstance(settings, dict)
        else ()
    )


def _setting(name: str, told: object) -> SettingInForce:
    if not isinstance(told, dict):
        return SettingInForce(name, _value(told))
    return SettingInForce(name, _value(told.get("value")), str(told.get("source", "")))


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return "" if value is None else str(value)


def _warnings(
    records: JobRecords,
    nodes: Mapping[str, _Node],
    times: Mapping[str, NodeTime],
    restarts: Mapping[str, NodeRestarts],
) -> Sequence[str]:
    warnings = [text for each in times.values() for text in each.warnings]
    warnings += [text for each in restarts.values() for text in each.warnings]
    confirmed = {
        event.subject: name
        for name, node in nodes.items()
        for event in node.events
        if event.subject is not None and event.name == "incident.confirmed"
    }
    lost = [(incident, name) for incident, name in confirmed.items() if incident not in records.diagnoses]
    warnings += [
        f"incident {incident} of node {name} is not among the stored ones, or cannot be read: "
        "what is shown of it is what the events say"
        for incident, name in lost
    ]
    return warnings
