"""Reads what tables are made of: a job's records, and its incidents' snapshots when they are asked for.

The shell of this room. What cannot be read is said and left out, never raised.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rankscope.diag.errors import StoreError
from rankscope.diag.history.read import JobRecords, NodeRecords, read_job
from rankscope.diag.history.state import state_of_records
from rankscope.diag.history.story import history_and_events
from rankscope.diag.merge.groups import runs_of
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.files import read_json
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder, newer_version
from rankscope.diag.tables.looks import LookOf, RankT
from rankscope.diag.tables.records import ReadLook, StoredIncident, StoredJob
from rankscope.diag.tables.told import told_of_incidents

_LOOKS: Final = ("a", "b")


def stored_job(folder: JobFolder, *, earlier: bool = False) -> StoredJob:
    """Read a job's folder, without its snapshots.

    Args:
        folder: the job's.
        earlier: all jobs of its run id.
    """
    records = read_job(folder)
    history, events = history_and_events(records, unfold=earlier)
    state, result, ended = state_of_records(records, now=time.time())
    return StoredJob(
        name=history.job,
        state=state,
        result=result,
        ended=ended,
        history=history,
        events=events,
        diagnoses=records.diagnoses,
        decisions=records.decisions,
        told=told_of_incidents(event for node in records.nodes for event in node.events),
        folder=str(folder.path),
        warnings=(
            *history.warnings,
            *_odd(records.diagnoses),
            *_cut_short(records.nodes, ended=_says_ended(records)),
        ),
    )


def _odd(diagnoses: Mapping[str, Diagnosis]) -> Iterator[str]:
    """Diagnoses of which not all can be shown."""
    for incident, one in diagnoses.items():
        if newer := newer_version(f"incident {incident}", one.schema):
            yield newer
        if any(runs_of(group) is None for group in one.stacks):
            yield f"incident {incident}: ranks of a stack are damaged; its `rank_list` is empty"


def _says_ended(records: JobRecords) -> bool:
    """Whether an agent has written that the job has ended, be it true of all or not."""
    return records.job is not None and records.job.ended is not None


def _cut_short(nodes: Sequence[NodeRecords], *, ended: bool) -> Iterator[str]:
    """A job that is said to have ended, and a node whose log does not say so."""
    for node in nodes:
        if ended and not node.is_watch and node.jobs[-1][-1].ended is None:
            yield (
                f"node {node.node}: the job is said to have ended, and the last word of this node's agent is "
                f"missing (it was killed, or its log is cut short): nothing is known of it after "
                f"{node.events[-1].time}"
            )


def incidents_of(job: str, folders: Sequence[Path]) -> Iterator[StoredIncident]:
    """The incidents in these folders, in their order."""
    for path in folders:
        folder = IncidentFolder(path)
        looks = tuple(name for name in _LOOKS if folder.snapshot_path(name).exists())
        yield StoredIncident(path.name, job, _diagnosis_of(folder), looks, _reader_of(folder))


def incident_paths(folder: JobFolder) -> list[Path]:
    """The folders of a job's incidents, oldest first, those of suspicions that came to nothing included."""
    try:
        with os.scandir(folder.incidents) as entries:
            names = [one.name for one in entries if one.is_dir() and not one.name.startswith(".")]
    except OSError:  # read_job has said so
        return []
    return [folder.incidents / name for name in sorted(names)]


def _diagnosis_of(folder: IncidentFolder) -> Callable[[], Diagnosis | None]:
    def read() -> Diagnosis | None:
        try:
            return folder.diagnosis()
        except StoreError:  # read_job has said so
            return None

    return read


def _reader_of(folder: IncidentFolder) -> ReadLook:
    def read(name: str, kind: type[LookOf[RankT]]) -> LookOf[RankT]:
        return read_json(folder.snapshot_path(name), kind)

    return read
