"""Runs one row of the matrix through ``diag run`` and reads what was found from the job's own records.

Nothing here knows what is right: ``tests.faults.matrix`` does.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.faults.matrix import NO_INCIDENT, Answer, Row
from tests.jobs import Job, diag_run, end_process

from rankscope.diag import proc
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.incidents import IncidentFolder, incident_folders

_LOOK: Final = 0.1
_SETTLE: Final = 2.0
"""Seconds for the records of an incident whose diagnosis is there already."""


@dataclass(frozen=True)
class Found:
    """What came out of a row.

    Attributes:
        seconds: from the last progress (or the death of the process) to the stored verdict, ``None`` when
            there was none.
        remark: what a person should know besides.
    """

    answer: Answer
    seconds: float | None = None
    remark: str = ""


def run(row: Row, folder: Path) -> Found:
    """Run a row to its verdict, or to the end of a job without one; never longer than its patience."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    with (
        diag_run(
            folder / "job",
            "--max-restarts=0",
            ranks=row.ranks,
            script=row.command(folder),
            environ={"TMPDIR": str(scratch)},
        ) as job,
        _nobody_left(job),
    ):
        deadline = time.monotonic() + row.patience
        try:
            if row.during is not None:
                row.during(job)
        except AssertionError as error:
            return Found(Answer("not run"), remark=f"{error}: {_last_line(job)}")
        incident, code = _first_incident_or_end(job, deadline)
        if incident is not None:
            return _read(job, incident)
        return _without_incident(job, code, row.patience)


def _first_incident_or_end(job: Job, deadline: float) -> tuple[IncidentFolder | None, int | None]:
    """The first incident, ``None`` without one; the exit code, ``None`` while the job runs."""
    assert job.process is not None
    while time.monotonic() < deadline:
        code = job.process.poll()
        incidents = incident_folders(job.records.incidents)
        if incidents:
            return incidents[0], code
        if code is not None:
            return None, code
        time.sleep(_LOOK)
    return None, None


def _without_incident(job: Job, code: int | None, patience: float) -> Found:
    suspicions = job.events("suspected")
    remark = "; ".join(f"suspected and cleared: {event.data.get('reason')}" for event in suspicions)
    if code is None:
        return Found(Answer("no end"), remark=f"neither an incident nor an end within {patience:.0f} s")
    if code != 0:
        return Found(Answer(f"exit {code}"), remark=_last_line(job))
    return Found(NO_INCIDENT, remark=remark)


def _read(job: Job, incident: IncidentFolder) -> Found:
    diagnosis, snapshot = incident.diagnosis(), incident.snapshot("a")
    until = time.monotonic() + _SETTLE
    while time.monotonic() < until and not _announced(job, incident.id):
        time.sleep(_LOOK)
    return Found(_answer(diagnosis), _seconds(job, diagnosis, snapshot), diagnosis.summary)


def _answer(diagnosis: Diagnosis) -> Answer:
    return Answer(
        diagnosis.verdict,
        fold_ranks(diagnosis.culprits) or "-",
        diagnosis.kind,
        diagnosis.location.function if diagnosis.location else "-",
    )


def _announced(job: Job, incident: str) -> bool:
    return any(
        event.subject == incident and event.type.endswith(("incident.confirmed", "worker.failed"))
        for event in job.events()
    )


def _seconds(job: Job, diagnosis: Diagnosis, snapshot: JobSnapshot | None) -> float | None:
    """A hang's event says it; a death is dated by the snapshot that saw it."""
    for event in job.events("incident.confirmed"):
        seconds = event.data.get("seconds")
        if event.subject == diagnosis.incident and isinstance(seconds, float):
            return seconds
    if snapshot is None:
        return None
    ages = [rank.exit.seconds_ago for rank in snapshot.ranks if rank.exit and rank.exit.seconds_ago]
    if not ages:
        return None
    judged = datetime.fromisoformat(diagnosis.time).timestamp()
    return max(ages) + max(0.0, judged - snapshot.time)


def _last_line(job: Job) -> str:
    lines = job.stderr.strip().splitlines()
    return lines[-1] if lines else "nothing on stderr"


@contextmanager
def _nobody_left(job: Job) -> Generator[None]:
    """A stuck loader worker outlives its killed rank: it is ended with the job."""
    try:
        yield
    finally:
        below = proc.descendants(job.pid)
        job.end()
        for pid in below:
            end_process(pid, job.run_id)
