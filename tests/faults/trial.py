"""Runs one trial of a row: under ``diag run``, or beside torchrun (``tests.faults.beside``).

Under ``diag run`` a fault is run to its verdict, anything else to the end of the job, and what was found is
read from the job's own records. Nothing here knows what is right: ``tests.faults.found`` does.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.faults.beside import look_beside
from tests.faults.draw import Draw, draw
from tests.faults.found import NO_INCIDENT, Found, answer_of, expectation
from tests.faults.ranks_of import nobody_left
from tests.faults.rows import Answer, Expectation, Mode, Row
from tests.jobs import Job, diag_run, last_line, torchrun

from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.store.incidents import IncidentFolder, incident_folders

_LOOK: Final = 0.1
_SETTLE: Final = 2.0
"""Seconds for the records of an incident whose diagnosis is there already."""
_ANNOUNCED: Final = ("incident.confirmed", "slow", "worker.failed")
_SAYS_NOTHING: Final = frozenset({"Unknown", "Healthy"})


@dataclass(frozen=True)
class Trial:
    """One run of a row.

    Attributes:
        draw: what was left to chance.
        mode: how it is run.
        number: which of several with the same draw.
    """

    row: Row
    draw: Draw
    mode: Mode
    number: int = 0

    @property
    def name(self) -> str:
        """Tells it from all others of a matrix."""
        return f"{self.row.name}-{self.mode}-{self.draw.seed}-{self.draw.rank}-{self.number}"


def trials_of(row: Row, seed: int, *, mode: Mode | None = None, zero: bool | None = None) -> list[Trial]:
    """All trials of a row: in each mode with the fault on a drawn rank, and again on rank 0.

    Args:
        row: the row.
        seed: of the draws.
        mode: only this one.
        zero: only with the fault on rank 0, or only on another.
    """
    sides = [False, True] if row.zero else [False]
    return [
        Trial(row, draw(row, seed, zero=side), one)
        for one in row.modes
        if mode in (None, one)
        for side in sides
        if zero in (None, side)
    ]


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


def run(trial: Trial, folder: Path, *, given_up: threading.Event) -> tuple[Expectation, Found]:
    """Run a row to its verdict, or to the end of the job; never longer than its patience.

    Args:
        trial: what is run.
        folder: for everything the job writes; its name is the job's.
        given_up: set by whoever does not want to know any more.

    Returns:
        What was expected of this draw, and what was found.
    """
    row, began = trial.row, time.monotonic()
    folder.mkdir(parents=True)
    around = row.around(folder, trial.draw) if row.around is not None else nullcontext()
    launch = diag_run if trial.mode == "run" else torchrun
    # A path of its own, for a socket's path below the job's folder might be too long.
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch, around:
        script = row.command(folder, trial.draw)
        expected = expectation(row, trial.draw, trial.mode, folder)
        flags = (*row.launch, *(row.flags if trial.mode == "run" else ()))
        environ = {"TMPDIR": scratch}
        with (
            launch(folder, *flags, ranks=trial.draw.ranks, script=script, environ=environ) as job,
            nobody_left(job),
        ):
            deadline = began + row.patience
            found = _look_at(trial, expected, job, deadline, given_up)
    return expected, replace(found, wall=time.monotonic() - began)


def _look_at(
    trial: Trial, expected: Expectation, job: Job, deadline: float, given_up: threading.Event
) -> Found:
    row = trial.row
    try:
        if row.during is not None:
            row.during(job, trial.draw)
        if trial.mode == "beside":
            return look_beside(job, row.beside, trial.draw, deadline=deadline, given_up=given_up)
    except AssertionError as error:
        return Found(Answer("not run"), remark=f"{error}: {last_line(job)}")
    story = _Story()
    code = _follow(job, story, deadline, given_up, expected)
    return _read(job, story, code, patience=row.patience)


def _follow(
    job: Job, story: _Story, deadline: float, given_up: threading.Event, expected: Expectation
) -> int | None:
    """Read along; the job's exit code, ``None`` while it runs."""
    assert job.process is not None
    while time.monotonic() < deadline and not given_up.wait(_LOOK):
        code = job.process.poll()
        story.read(job)
        if code is not None:
            return code
        if isinstance(expected, Answer) and _is_told(story, expected):
            return None
    return None


def _is_told(story: _Story, expected: Answer) -> bool:
    """Whether the answer is there; where nothing more than ``Unknown`` is expected, that is one."""
    return story.verdict is not None or (expected.verdict in _SAYS_NOTHING and bool(story.told))


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
        answer, seconds = answer_of(diagnosis), _seconds(job, diagnosis, folder.snapshot("a"))
        remarks += [f"{one.severity}, {one.confidence}: {one.summary}" for _folder, one in story.told]
    elif code is None:
        answer = Answer("no end")
        remarks.append(f"neither an incident nor an end within {patience:.0f} s")
    elif code != 0:
        answer = Answer(f"exit {code}")
        remarks.append(last_line(job))
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


def _wait_until_announced(job: Job, incident: str) -> None:
    until = time.monotonic() + _SETTLE
    while time.monotonic() < until and not any(
        event.subject == incident and event.type.endswith(_ANNOUNCED) for event in job.events()
    ):
        time.sleep(_LOOK)


def _seconds(job: Job, diagnosis: Diagnosis, snapshot: JobSnapshot | None) -> float | None:
    """A hang's event says it, and slowness'; a death is dated by the snapshot that saw it."""
    for event in (*job.events("incident.confirmed"), *job.events("slow")):
        seconds = event.data.get("seconds")
        if (
            event.subject == diagnosis.incident
            and event.data.get("verdict") == diagnosis.verdict
            and isinstance(seconds, float)
        ):
            return seconds
    if snapshot is None or diagnosis.verdict != "Exited":
        return None
    # Who raised was held, and has not ended yet.
    ages = [rank.exit.seconds_ago or 0.0 for rank in snapshot.ranks if rank.exit]
    judged = datetime.fromisoformat(diagnosis.time.replace("Z", "+00:00")).timestamp()  # Python 3.10
    return max(ages, default=0.0) + max(0.0, judged - snapshot.time)
