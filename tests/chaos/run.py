"""Runs one round: its job, what happens to it, its end; and brings together what came of it.

It knows what to wait for from what is expected, and judges nothing: ``tests.chaos.checks`` does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.acts import Actor
from tests.chaos.expected import Expected, expected_of
from tests.chaos.job import DONE, GO, NOTICES, ChaosJob, lock_files
from tests.chaos.onlooker import Onlooker, alive_of
from tests.chaos.places import Ground, ground
from tests.chaos.plan import GATE, STEP_TIME, STEPS, Act, Round
from tests.chaos.rows import row_of
from tests.faults.draw import draw as draw_row
from tests.faults.found import expectation
from tests.faults.rows import Answer
from tests.jobs import until

from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import Event
from rankscope.diag.store.incidents import IncidentFolder, incident_folders

PATIENCE: Final = 150.0
"""Seconds for any one thing that a round waits for."""
_GRACE: Final = 10.0
"""Seconds that small processes have to end after their agent."""
_PAUSE: Final = 0.05
_PROGRAM: Final = Path(__file__).parent / "programs" / "committing_job.py"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident as it is stored.

    Attributes:
        written: when each of its files was (unix seconds), by name.
        looked: when its newest look was done (unix seconds).
    """

    diagnosis: Diagnosis
    written: Mapping[str, float]
    looked: float


@dataclass(slots=True)
class Seen:
    """What came of a round.

    Attributes:
        exit_code: of the last agent.
        acts: what was done to the job, and when.
        answer: the fault matrix' expectation of a row of it.
        left: processes that outlived their agent, with their command lines.
        files: that should be gone.
        incidents: those that have snapshot and diagnosis, by id.
        history: what ``diag history --json`` said; empty when it failed.
        history_error: what it said then.
        seconds: of the round.
    """

    job: ChaosJob
    onlooker: Onlooker
    exit_code: int
    acts: list[tuple[Act, float]]
    answer: Answer | None = None
    left: dict[int, str] = field(default_factory=dict[int, str])
    files: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])
    incidents: Mapping[str, Incident] = field(default_factory=dict[str, Incident])
    history: Mapping[str, object] = field(default_factory=dict[str, object])
    history_error: str = ""
    seconds: float = 0.0


def run(one: Round, folder: Path) -> tuple[Expected, Seen]:
    """Run a round in this process.

    Args:
        one: what was drawn.
        folder: for everything that is kept of it.

    Raises:
        AssertionError: something did not happen in time.
    """
    began, since, expected = time.monotonic(), time.time(), expected_of(one)
    folder.mkdir(parents=True)
    # A path of its own, for a socket's path below the round's folder might be too long.
    with _scratch() as scratch, ground(one.place, folder) as there:
        job, answer = _prepare(one, folder, there, scratch)
        onlooker = Onlooker(job)
        try:
            job.launch()
            onlooker.open()
            actor = Actor(job, there, expected, seconds=PATIENCE)
            actor.perform(one.acts)
            code = _see_it_end(job, expected)
            there.thaw()
            left = _left_over(job.run_id)
            seen = Seen(job, onlooker, code, actor.done, answer, left, job.left_behind())
        finally:
            there.thaw()
            onlooker.close()
            _end_all(job)
        seen.files += lock_files(onlooker.pids, since=since)
        _read_records(seen)
    seen.seconds = time.monotonic() - began
    return expected, seen


@contextmanager
def _scratch() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(one: Round, folder: Path, there: Ground, scratch: Path) -> tuple[ChaosJob, Answer | None]:
    """The job, not started; and what the fault matrix expects when it is one of its rows."""
    run_id = f"chaos-{os.getpid()}-{one.seed}-{one.number}"
    answer, ranks, flags = None, one.ranks, one.settings.flags
    if one.row:
        row = row_of(one.row, one.ranks)
        drawn = draw_row(row, one.seed, zero=row.zero and one.number % 2 == 0)
        script, ranks = row.command(folder, drawn), drawn.ranks
        expects = expectation(row, drawn, "run", folder)
        answer = expects if isinstance(expects, Answer) else None
        flags = (*row.launch, *row.flags, *flags)
    else:
        own = (f"--done={folder / DONE}", f"--go={folder / GO}", f"--gate={GATE}", f"--steps={STEPS}")
        script = [str(_PROGRAM), *own, f"--step-time={STEP_TIME}"]
    if one.settings.notices:
        flags = (*flags, f"--notify-command=tee -a {folder / NOTICES}")
    words = [f"--nproc-per-node={ranks}", *flags, *script]
    return ChaosJob(folder, run_id, home=there.path / "home", scratch=scratch, words=words), answer


def _see_it_end(job: ChaosJob, expected: Expected) -> int:
    """Its exit code; a job that stands on after its decision is stopped."""
    if expected.by_hand:
        wanted = len(expected.actions)
        until(
            lambda: job.is_over or len(job.events("decision")) >= wanted,
            f"decision {wanted}",
            seconds=PATIENCE,
        )
        if not job.is_over:
            job.signal(signal.SIGTERM)
    until(lambda: job.is_over, "the job to end", seconds=PATIENCE * (1 + expected.restarts))
    return job.finish()


def _left_over(token: str) -> dict[int, str]:
    """Who still runs some seconds after the agent has ended."""
    deadline = time.monotonic() + _GRACE
    while (left := alive_of(token)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return left


def _end_all(job: ChaosJob) -> None:
    """Leave nobody, whatever went wrong."""
    job.end()
    for pid in alive_of(job.run_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _read_incident(folder: IncidentFolder) -> Incident:
    looks = [look.time for which in ("a", "b") if (look := folder.snapshot(which)) is not None]
    written = {path.name: path.stat().st_mtime for path in folder.path.iterdir()}
    return Incident(folder.diagnosis(), written, max(looks, default=0.0))


def _read_records(seen: Seen) -> None:
    job = seen.job
    seen.events = job.events()
    # Their file system may be gone when they are judged.
    folders = [folder for folder in incident_folders(job.records.incidents) if folder.is_complete]
    seen.incidents = {folder.id: _read_incident(folder) for folder in folders}
    done = job.diag("history", str(job.records.path), "--json")
    if done.returncode == 0:
        seen.history = json.loads(done.stdout)
    else:
        seen.history_error = done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"
