"""The document of a live page: from the job folder, and what an agent could not write. It blocks (files).

What of the records is damaged or missing is said on the page (``timeline.warnings``), and never raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from rankscope.diag.errors import StoreError
from rankscope.diag.history.read import JobRecords, NodeRecords, read_job
from rankscope.diag.history.story import history_and_events, history_of
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.report.html.live_data import LivePage, live_data
from rankscope.diag.store.event_order import merged
from rankscope.diag.store.events import Event
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder


def read_live_page(
    folder: JobFolder,
    *,
    made: str,
    unwritten: Iterable[Event] = (),
    diagnoses: Iterable[Diagnosis] = (),
    incident: str | None = None,
    records: JobRecords | None = None,
) -> LivePage:
    """Read what is stored of a job.

    Args:
        folder: the job's.
        made: the time now, ISO 8601.
        unwritten: events that are only in an agent's memory.
        diagnoses: likewise.
        incident: the one to show, ``None`` for the last one of the job.
        records: what is stored, when that has been read already.
    """
    records = _with_memory(read_job(folder) if records is None else records, unwritten, diagnoses)
    _history, by_node = history_and_events(records)
    shown = incident if incident in records.diagnoses else _last(records)
    return live_data(
        history_of(records),
        merged(by_node.values()),
        made=made,
        diagnosis=msgspec.structs.replace(records.diagnoses[shown], incident=shown) if shown else None,
        look=_look(IncidentFolder(folder.incidents / shown)) if shown else None,
        decision=records.decisions.get(shown) if shown else None,
    )


def _with_memory(records: JobRecords, events: Iterable[Event], diagnoses: Iterable[Diagnosis]) -> JobRecords:
    """The records with what is only in memory behind them."""
    nodes = {one.node: one for one in records.nodes}
    for event in events:
        node = nodes.get(event.source) or NodeRecords(event.source, ())
        if all(known.id != event.id for known in node.events[-1000:]):
            nodes[event.source] = replace(node, events=(*node.events, event))
    kept = {one.incident: one for one in diagnoses if one.incident}
    return replace(records, nodes=tuple(nodes.values()), diagnoses=kept | records.diagnoses)


def _last(records: JobRecords) -> str | None:
    """The last incident of this job: none of an earlier one that had the same run id."""
    since = records.job.created if records.job is not None else ""
    return max((name for name, one in records.diagnoses.items() if one.time >= since), default=None)


def _look(incident: IncidentFolder) -> JobSnapshot | None:
    for which in ("b", "a"):
        try:
            look = incident.snapshot(which)
        except (StoreError, OSError):
            continue
        if look is not None:
            return look
    return None
