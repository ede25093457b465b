"""What a live page shows of a job that may or may not have an incident: one document. Pure.

It is put together of what others decided: the standing of ``diag top``, the history of ``diag history``, the
document of the report. The only thing it says of its own is whether the report's incident still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rankscope.diag.history.model import JobHistory
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.report.html.document import SCHEMA, Page, Timeline
from rankscope.diag.report.html.page_data import page_data
from rankscope.diag.report.html.shown import shown
from rankscope.diag.report.html.timeline_part import timeline_part
from rankscope.diag.store.events import Event
from rankscope.diag.top.standing import standing_of

_ENDS: Final = frozenset({"cycle.started", "incident.recovered", "job.started", "restart"})
"""Events after which an incident that was told of before them holds no more. The end of the job is none: what
it ended with is what one wants to know."""
_BEGINS: Final = frozenset({"analyzed", "decision", "incident.confirmed", "slow", "worker.failed"})
_TELLING: Final = _ENDS | _BEGINS | {"cleared", "job.ended", "restart.begun", "stopping", "suspected"}
"""Events that change how a job stands (``diag.top.standing``)."""


class Stands(msgspec.Struct, frozen=True):
    """How the job stands, by the last words of its agents.

    Attributes:
        word: a sentence; ``""`` when all is well.
        is_alarm: whether it is bad news.
        since: when it was said, ISO 8601, UTC; ``""`` when nothing was.
        restarts: counted by the agent.
    """

    word: str = ""
    is_alarm: bool = False
    since: str = ""
    restarts: int = 0


class LivePage(msgspec.Struct, frozen=True):
    """All that a live page shows beside the ranks as they are now.

    Attributes:
        made: when the document was made, ISO 8601, UTC.
        stands: how the job stands.
        is_over: whether the job has ended, or no agent of it is left.
        report: of the last incident of the job, without its timeline; ``None`` for a job without one.
        is_current: whether that incident still holds: nothing was started again or recovered since.
        timeline: ``None`` when nothing is stored of the job.
    """

    made: str
    job: str
    stands: Stands
    is_over: bool
    report: Page | None
    is_current: bool
    timeline: Timeline | None
    schema: int = SCHEMA


def live_data(
    history: JobHistory,
    events: Iterable[Event],
    *,
    made: str,
    diagnosis: Diagnosis | None = None,
    look: JobSnapshot | None = None,
    decision: Decision | None = None,
) -> LivePage:
    """The document of a live page.

    Args:
        history: what the job has been through.
        events: of its last run, in their order.
        made: when the document is made.
        diagnosis: of its last incident, ``None`` when it has none.
        look: the last look that it was found in.
        decision: what was decided about it.
    """
    told = list(events)
    incident = diagnosis.incident if diagnosis is not None else None
    report = None
    if diagnosis is not None:
        whole = page_data(diagnosis, made=made, look=look, decision=decision, history=history)
        report = msgspec.structs.replace(whole, timeline=None)
    return LivePage(
        made=made,
        job=shown(history.job, 400),
        stands=_stands(told),
        is_over=history.ended is not None or history.result == "killed",
        report=report,
        is_current=incident is not None and incident == current_incident(told),
        timeline=timeline_part(history, incident),
    )


def current_incident(events: Iterable[Event]) -> str | None:
    """The incident that the events of a job, in their order, leave standing."""
    found: str | None = None
    is_slow = False
    for event in events:
        if event.name in _BEGINS and event.subject is not None:
            found, is_slow = event.subject, event.name == "slow"
        elif event.name == "analyzed" and event.data.get("verdict") == "Healthy":
            found = None  # somebody asked, and it went on
        elif event.name == "incident.recovered":
            found = None if event.subject in (found, None) else found
        elif event.name in _ENDS or (event.name == "cycle.ended" and is_slow):  # a launch ends what was slow
            found = None
    return found


def _stands(events: Sequence[Event]) -> Stands:
    standing = standing_of(events)
    since = ""
    for event in events:
        if event.name in _TELLING:
            since = event.time
    return Stands(
        word=shown(standing.word),
        is_alarm=standing.is_alarm,
        since=shown(since, 40),
        restarts=standing.restarts,
    )
