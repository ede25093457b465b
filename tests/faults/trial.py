"""Runs one row of the matrix through ``diag run`` and reads what was found from the job's own records.

A fault is run to its verdict, anything else to the end of the job. Nothing here knows what is right:
``tests.faults.rows`` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.faults.rows import NO_INCIDENT, Answer, Found, Row
from tests.jobs import Job, diag_run, end_process

from rankscope.diag import proc
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.incidents import IncidentFolder, incident_folders

_LOOK: Final = 0.1
_SETTLE: Final = 2.0
"""Seconds for the records of an incident whose diagnosis is there already."""
_SAYS_NOTHING: Final = frozenset({"Unknown", "Healthy"})


@dataclass
class _Story:
    """All diagnoses of a job in the order in which they were stored, a second look at the same included."""

    told: list[tuple[IncidentFolder, Diagnosis]] = field(
        default_factory=list[tuple[IncidentFolder, Diagnosis]]
    )

    def read(self, job: Job) -> None:
        known = {diagnosis.incident: diagnosis for _folder, diagnosis in self.told}
        for folder in incident_folders(job.records.incidents):
            diagnosis = folder.diagnosis()
            if known.get(diagnosis.incident) != diagnosis:
                self.told.append((folder, diagnosis))

    @property
    def verdict(self) -> tuple[IncidentFolder, Diagnosis] | None:
        """The first that says something, ``None`` while there is none."""
        return next((one for one in self.told if one[1].verdict not in _SAYS_NOTHING), None)


def run(row: Row, folder: Path, *, given_up: threading.Event) -> Found:
    """Run a row to its verdict, or to the end of the job; never longer than its patience.

    Args:
        row: the row.
        folder: for everything the job writes; its name is the job's.
        given_up: set by whoever does not want to know any more.
    """
    began = time.monotonic()
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    with (
        diag_run(
            folder,
            *row.flags,
            ranks=row.ranks,
            script=row.command(folder),
            environ={"TMPDIR": str(scratch)},
        ) as job,
        _nobody_left(job),
    ):
        deadline = began + row.patience
        try:
            if row.during is not None:
                row.during(job)
        except AssertionError as error:
            return Found(Answer("not run"), remark=f"{error}: {_last_line(job)}")
        story = _Story()
        code = _follow(job, story, deadline, given_up, to_the_end=not isinstance(row.expected, Answer))
        found = _read(job, story, code, patience=row.patience)
    return replace(found, wall=time.monotonic() - began)


def _follow(
    job: Job, story: _Story, deadline: float, given_up: threading.Event, *, to_the_end: bool
) -> int | None:
    """Read along; the job's exit code, ``None`` while it runs."""
    assert job.process is not None
    while time.monotonic() < deadline and not given_up.wait(_LOOK):
        code = job.process.poll()
        story.read(job)
        if code is not None:
            return code
        if not to_the_end and story.verdict is not None:
            return None
    return None


def _read(job: Job, story: _Story, code: int | None, *, patience: float) -> Found:
    remarks = [
        f"suspected ({suspected.data.get('reason')}) and cleared ({cleared.data.get('reason')})"
        for suspected in job.events("suspected")
        for cleared in job.events("cleared")
        if suspected.subject == cleared.subject
    ]
    answer, seconds = NO_INCIDENT, None
    if story.told:
        folder, diagnosis = story.verdict or story.told[-1]
        _wait_until_announced(job, folder.id)
        answer, seconds = _answer(diagnosis), _seconds(job, diagnosis, folder.snapshot("a"))
        remarks += [f"{one.severity}, {one.confidence}: {one.summary}" for _folder, one in story.told]
    elif code is None:
        answer = Answer("no end")
        remarks.append(f"neither an incident nor an end within {patience:.0f} s")
    elif code != 0:
        answer = Answer(f"exit {code}")
        remarks.append(_last_line(job))
    recovered = {event.subject for event in job.events("incident.recovered")}
    published = {event.subject for event in job.events("incident.confirmed")}
    return Found(
        answer,
        exit_code=code,
        severities=tuple(diagnosis.severity for _folder, diagnosis in story.told),
        open_incidents=len(published - recovered),
        actions=tuple(str(event.data.get("action")) for event in job.events("decision")),
        seconds=seconds,
        remark="\n".join(remarks),
    )


def _answer(diagnosis: Diagnosis) -> Answer:
    return Answer(
        diagnosis.verdict,
        fold_ranks(diagnosis.culprits) or "-",
        diagnosis.kind,
        diagnosis.location.function if diagnosis.location else "-",
    )


def _wait_until_announced(job: Job, incident: str) -> None:
    until = time.monotonic() + _SETTLE
    while time.monotonic() < until and not any(
        event.subject == incident and event.type.endswith(("incident.confirmed", "worker.failed"))
        for event in job.events()
    ):
        time.sleep(_LOOK)


def _seconds(job: Job, diagnosis: Diagnosis, snapshot: JobSnapshot | None) -> float | None:
    """A hang's event says it; a death is dated by the snapshot that saw it."""
    for event in job.events("incident.confirmed"):
        seconds = event.data.get("seconds")
        if (
            event.subject == diagnosis.incident
            and event.data.get("verdict") == diagnosis.verdict
            and isinstance(seconds, float)
        ):
            return seconds
    if snapshot is None:
        return None
    ages = [rank.exit.seconds_ago for rank in snapshot.ranks if rank.exit and rank.exit.seconds_ago]
    if not ages:
        return None
    judged = datetime.fromisoformat(diagnosis.time.replace("Z", "+00:00")).timestamp()  # Python 3.10
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
