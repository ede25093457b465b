"""What a job has been through, as a page shows it: cycles, incidents, decisions, restarts. Pure.

It takes a finished history (``rankscope.diag.history``) and adds up nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rankscope.diag.history.model import JobHistory, Moment, Restart
from rankscope.diag.model import Decision
from rankscope.diag.report.history_text import duration_text
from rankscope.diag.report.html.document import CycleRow, Decided, MomentKind, MomentRow, Timeline
from rankscope.diag.report.html.shown import shown
from rankscope.diag.store.events import unix_time
from rankscope.diag.store.launches import STAGES, Cycle, RestartRecord

MOST_CYCLES: Final = 200
MOST_MOMENTS: Final = 400
_LONG: Final = 400
_KINDS: Final[dict[str, MomentKind]] = {
    "incident.confirmed": "incident",
    "incident.recovered": "incident",
    "decision": "decision",
    "restart": "restart",
    "slow": "slow",
    "job.ended": "end",
    "agent.gone": "end",
}


def timeline_part(history: JobHistory, incident: str | None) -> Timeline:
    """The timeline; of what is too much, the newest is kept."""
    told = list(_moments(history, incident))
    moments = sorted([*told, *_restarts(history, incident, told)], key=lambda one: one.at)
    cycles = [_cycle(cycle) for cycle in sorted(history.cycles, key=lambda cycle: (cycle.began, cycle.node))]
    return Timeline(
        state=shown(history.result, 100),
        command=shown(" ".join(history.command)),
        created=history.created,
        ended=history.ended,
        wall=history.wall,
        lost=history.lost,
        node_count=len(history.nodes),
        restarts=len(history.restarts),
        stages=STAGES,
        cycles=tuple(cycles[-MOST_CYCLES:]),
        moments=tuple(moments[-MOST_MOMENTS:]),
        cycles_left_out=max(0, len(cycles) - MOST_CYCLES),
        moments_left_out=max(0, len(moments) - MOST_MOMENTS),
        warnings=tuple(shown(text, _LONG) for text in history.warnings[:50]),
    )


def _cycle(cycle: Cycle) -> CycleRow:
    return CycleRow(
        node=shown(cycle.node, 200),
        number=cycle.number,
        began=unix_time(cycle.began) or 0.0,
        duration=cycle.duration,
        stages=tuple(float(getattr(cycle, stage)) for stage in STAGES),
        result=shown(cycle.result, 100),
        reason=shown(cycle.reason, _LONG),
        steps=cycle.steps,
        incident=cycle.incident and shown(cycle.incident, 100),
    )


def _moments(history: JobHistory, incident: str | None) -> Iterable[MomentRow]:
    for one in history.moments:
        yield MomentRow(
            time=shown(one.time, 40),
            at=unix_time(one.time) or 0.0,
            kind=_KINDS.get(one.type, "other"),
            type=shown(one.type, 100),
            text=shown(one.text, _LONG),
            node=_where(one),
            count=one.count,
            incident=one.incident and shown(one.incident, 100),
            is_this=incident is not None and one.incident == incident,
        )


def _where(moment: Moment) -> str:
    return f"{len(moment.nodes)} nodes" if len(moment.nodes) > 1 else shown(moment.node, 200)


def _restarts(history: JobHistory, incident: str | None, told: Sequence[MomentRow]) -> Iterable[MomentRow]:
    """The restarts, none before its own decision, which is stamped milliseconds later."""
    decided = {one.incident: one.at for one in told if one.kind == "decision" and one.incident}
    for one in history.restarts:
        record = one.record
        at = unix_time(record.restart_time) or 0.0
        yield MomentRow(
            time=shown(record.restart_time, 40),
            at=max(at, decided.get(record.incident or "", at)) if at else at,
            kind="restart",
            type="restart",
            text=shown(restart_text(record), _LONG),
            node=f"{len(one.nodes)} nodes" if len(one.nodes) > 1 else shown(record.node_name, 200),
            incident=record.incident and shown(record.incident, 100),
            is_this=_follows(one, incident),
        )


def restart_text(record: RestartRecord) -> str:
    """A restart in a sentence, as ``diag history`` says it."""
    number = f"restart {record.restarts}" if record.is_counted else "restart that does not count"
    who = f" of worker {record.worker} alone" if record.worker is not None else ""
    took = f" after {record.duration:.1f} s" if record.duration is not None else ""
    lost = f", {record.lost:.1f} s after the last progress" if record.lost is not None else ""
    return f"{number}{who}: {record.result or 'under way'}{took}{lost}"


def _follows(restart: Restart, incident: str | None) -> bool:
    return incident is not None and restart.record.incident == incident


def decided_part(
    decision: Decision | None, history: JobHistory | None, incident: str | None
) -> Decided | None:
    """What was decided of the page's incident, and what came of it."""
    if decision is None:
        return None
    return Decided(
        action=decision.action,
        reason=shown(decision.reason),
        time=shown(decision.time, 40),
        exit_code=decision.exit_code,
        then=tuple(shown(text, _LONG) for text in _then(history, incident)) if history else (),
    )


def _then(history: JobHistory, incident: str | None) -> Iterable[str]:
    yield from (restart_text(one.record) for one in history.restarts if _follows(one, incident))
    for one in history.moments:
        if one.type == "incident.recovered" and one.incident == incident and incident is not None:
            yield f"recovered: {one.text}"
    if history.result:
        state = "the job runs" if history.ended is None and history.result == "running" else history.result
        ended = f"the job has ended since: {history.result}" if history.ended else state
        yield f"{ended} ({duration_text(history.wall)} in all)"
