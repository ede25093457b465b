"""The rows of all tables, read in as few passes over the jobs as there are kinds of files.

The records of a job are let go when its rows are made: ten thousand jobs would not fit. Snapshots are read
only for tables that show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.diag.tables.declare import Row, Rows
from rankscope.diag.tables.looks import BriefRank, LookOf, RawRank, RecordedRank, Stacks, StandingRank, Texts
from rankscope.diag.tables.of_history import (
    cycle_rows,
    event_rows,
    fault_rows,
    job_row,
    restart_rows,
    spent_rows,
)
from rankscope.diag.tables.of_incidents import evidence_rows, incident_rows, rank_rows, stack_rows
from rankscope.diag.tables.of_looks import group_rows, step_rows, thread_rows
from rankscope.diag.tables.of_records import Newest, collective_rows
from rankscope.diag.tables.records import Say, StoredIncident, StoredJob

RowsOf = Mapping[str, list[Row]]
"""Rows by the name of their table."""
FROM_RECORDS: Final = (
    "jobs",
    "incidents",
    "stacks",
    "evidence",
    "restarts",
    "faults",
    "cycles",
    "spent",
    "events",
)
"""Tables that need no snapshot."""
FROM_LOOKS: Final[tuple[tuple[str, ...], ...]] = (
    ("ranks", "steps", "groups"),
    ("threads",),
    ("collectives",),
)
"""Tables that do; those of one tuple are made in one reading."""


def from_records(job: StoredJob) -> dict[str, list[Row]]:
    """The rows of all tables that need no snapshot."""
    incidents = incident_rows(job.diagnoses, job.decisions, job.told)
    history = job.history
    diagnoses = sorted(job.diagnoses.items())
    return {
        "jobs": [job_row(job, incidents)],
        "incidents": incidents,
        "stacks": [row for name, one in diagnoses for row in stack_rows(name, one)],
        "evidence": [row for name, one in diagnoses for row in evidence_rows(name, one)],
        "restarts": list(restart_rows(history)),
        "faults": list(fault_rows(history)),
        "cycles": list(cycle_rows(history)),
        "spent": list(spent_rows(history)),
        "events": list(event_rows(job.events)),
    }


@dataclass(slots=True)
class Known:
    """What is met again and again over all looks: decoded once.

    Attributes:
        stacks: stacks by their bytes; texts likewise.
    """

    stacks: Stacks = field(default_factory=Stacks)
    texts: Texts = field(default_factory=Texts)


def from_looks(names: tuple[str, ...], incident: StoredIncident, known: Known, say: Say) -> RowsOf:
    """The rows of some tables that need snapshots, of one incident.

    Args:
        names: one of ``FROM_LOOKS``.
        incident: whose.
        known: grows.
        say: told what cannot be read.
    """
    return _MAKERS[names](incident, known, say)


def _brief(incident: StoredIncident, _known: Known, say: Say) -> RowsOf:
    looks = [(name, incident.look(name, LookOf[BriefRank], say)) for name in incident.looks]
    diagnosis = incident.diagnosis()
    newest = looks[-1][1] if looks else {}
    return {
        "ranks": list(rank_rows(incident.id, diagnosis, newest)) if diagnosis is not None else [],
        "steps": [row for name, ranks in looks for row in step_rows(incident.id, name, ranks.values())],
        "groups": [row for name, ranks in looks for row in group_rows(incident.id, name, ranks.values())],
    }


def _threads(incident: StoredIncident, known: Known, say: Say) -> RowsOf:
    rows: list[Row] = []
    for name in incident.looks:
        ranks = incident.look(name, LookOf[RawRank], say)
        rows += _readable(thread_rows(incident.id, name, ranks.values(), known.stacks), incident, say)
    return {"threads": rows}


def _collectives(incident: StoredIncident, known: Known, say: Say) -> RowsOf:
    newest, before = _recorded(incident, say)
    rows = collective_rows(incident.id, newest, before, known.stacks, known.texts)
    return {"collectives": _readable(rows, incident, say)}


def _readable(rows: Rows, incident: StoredIncident, say: Say) -> list[Row]:
    """The rows up to one that cannot be made: frames are decoded only here."""
    made: list[Row] = []
    try:
        made.extend(rows)
    except msgspec.DecodeError as error:
        say(f"incident {incident.id}: frames cannot be read ({error}); what is behind them is not shown")
    return made


def _recorded(incident: StoredIncident, say: Say) -> tuple[Newest, Mapping[int, StandingRank]]:
    """Records are long: an older look is read for them only where a newer one lacks some."""
    found: dict[int, tuple[str, RecordedRank]] = {}
    before: dict[int, StandingRank] = {}
    for name in reversed(incident.looks):
        if found:
            before = incident.look(name, LookOf[StandingRank], say)
            if not any(rank.record is not None and rank.rank not in found for rank in before.values()):
                continue
        ranks = incident.look(name, LookOf[RecordedRank], say)
        found = {number: (name, rank) for number, rank in ranks.items() if rank.record is not None} | found
    return {rank: found[rank] for rank in sorted(found)}, before


_MAKERS: Final[Mapping[tuple[str, ...], Callable[[StoredIncident, Known, Say], RowsOf]]] = dict(
    zip(FROM_LOOKS, (_brief, _threads, _collectives), strict=True)
)
