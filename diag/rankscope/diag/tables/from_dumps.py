"""An incident's folder alone, or dumps of any tools, as the one incident of a job without a history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rankscope.diag.dumps import read_dumps
from rankscope.diag.errors import StoreError
from rankscope.diag.history.model import JobHistory
from rankscope.diag.judging.dumped import judge_dumped
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.tables.looks import LookOf, RankT
from rankscope.diag.tables.records import ReadLook, StoredIncident, StoredJob
from rankscope.diag.tables.stored import incidents_of

Found = tuple[StoredJob, list[StoredIncident]]


def incident_alone(folder: IncidentFolder) -> Found:
    """An incident's folder, as ``diag analyze FOLDER`` shows it.

    Raises:
        StoreError: its diagnosis cannot be read.
    """
    diagnosis = folder.diagnosis()
    decisions: dict[str, Decision] = {}
    said: list[str] = []
    try:
        decision = folder.decision()
    except StoreError as error:
        said.append(str(error))
    else:
        if decision is not None:
            decisions[folder.id] = decision
    stored = _without_history(diagnosis.job, {folder.id: diagnosis}, decisions, said, folder=str(folder.path))
    path = folder.path if folder.path.name else folder.path.resolve()
    return stored, list(incidents_of(diagnosis.job, [path]))


def dumped_job(path: Path) -> Found:
    """Dumps, judged as ``diag analyze PATH`` judges them.

    Raises:
        UsageError: no dump can be read, or they are of several jobs.
    """
    said: list[str] = []
    dumped = read_dumps([path])
    diagnosis, _unused = judge_dumped(dumped, found_catalogue(None, say=said.append))
    said += [*dumped.notes, *(f"{one.where or path}: {one.what}" for one in dumped.problems)]
    name = path.resolve().name
    looks = [look for look in dumped.pair if look is not None]
    incident = StoredIncident(
        name, diagnosis.job, lambda: diagnosis, ("a", "b")[: len(looks)], _reader_of(looks)
    )
    return _without_history(diagnosis.job, {name: diagnosis}, {}, said, folder=str(path)), [incident]


def _reader_of(looks: Sequence[JobSnapshot]) -> ReadLook:
    def read(name: str, kind: type[LookOf[RankT]]) -> LookOf[RankT]:
        return msgspec.json.decode(msgspec.json.encode(looks["ab".index(name)]), type=kind)

    return read


def _without_history(
    job: str,
    diagnoses: dict[str, Diagnosis],
    decisions: dict[str, Decision],
    said: Sequence[str],
    *,
    folder: str,
) -> StoredJob:
    world_size = max((one.world_size for one in diagnoses.values()), default=0)
    history = JobHistory(
        job=job,
        created=None,
        ended=None,
        result="",
        command=(),
        asked_nodes="",
        nodes=(),
        world_size=world_size,
        wall=0.0,
        lost=0.0,
        spent=(),
        cycles=(),
        restarts=(),
        faults=(),
        moments=(),
        settings=(),
    )
    warnings = (f"{folder} is no job folder: there are no events, cycles and restarts", *said)
    return StoredJob(job, None, "", None, history, {}, diagnoses, decisions, {}, folder, warnings)
