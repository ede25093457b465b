"""Workers that are a launcher of their own: ``diag run --no-python -- mpirun -n 3 python train.py``.

One real job in three lives; every test looks at the same one. In the first a rank hangs in data loading, in
the second it raises, the third finishes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import Job, diag_run, until

from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, jobs_named
from rankscope.diag.store.incidents import IncidentFolder, incident_folders

PROGRAM = Path(__file__).parent / "programs" / "mpi_job.py"
FAULTY = 1
RANKS = 3
HANGING_LINE = "return shard.read_bytes()"
# Debian's where there is one, else that of the wheel.
MPIRUN = shutil.which("mpirun") or str(Path(sys.executable).parent / "mpirun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def line_of(text: str) -> int:
    return next(
        at for at, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.strip().startswith(text)
    )


@dataclass
class Lives:
    """The job after its end, and how it was found while it hung."""

    job: Job
    exit_code: int
    found: tuple[FoundJob, ...]
    workers: dict[int, int]

    def incidents(self) -> list[IncidentFolder]:
        return list(incident_folders(self.job.records.incidents))

    def of(self, verdict: str) -> IncidentFolder:
        (found,) = [one for one in self.incidents() if one.diagnosis().verdict == verdict]
        return found

    def data(self, event: str) -> list[dict[str, Any]]:
        return [one.data for one in self.job.events(event)]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    folder = tmp_path_factory.mktemp("mpirun")
    os.mkfifo(folder / "shard")
    command = [MPIRUN, "--oversubscribe", "-n", str(RANKS), sys.executable, str(PROGRAM), str(folder), "40"]
    flags = ("--max-restarts=2", "--job-hang-interval=15", "--no-python", "--")
    with diag_run(folder, *flags, ranks=1, script=command, environ=AS_ROOT) as job:
        job.wait_for_event("cycle.training")
        (folder / "go-0").touch()  # however long it took to find the ranks
        job.wait_for_event("incident.confirmed")
        found = jobs_named(job.run_id)
        workers = {worker.rank: worker.pid for worker in job.agent().workers}
        until(lambda: len(job.events("cycle.training")) > 1, "the second life")
        (folder / "go-1").touch()
        yield Lives(job, job.finish(), found, workers)


def test_the_job_ends_well_after_two_restarts(lives: Lives) -> None:
    assert lives.exit_code == 0, lives.job.stderr
    done = sorted(path.name for path in lives.job.folder.glob("done-*"))
    assert done == [f"done-{rank}" for rank in range(RANKS)]
    assert [one["action"] for one in lives.data("decision")] == ["restart", "restart"]
    assert [one["restarts"] for one in lives.data("restart")] == [1, 2]


def test_the_rank_that_hangs_in_data_loading_is_named_with_its_line(lives: Lives) -> None:
    diagnosis = lives.of("RankNonCommHang").diagnosis()
    assert (diagnosis.kind, diagnosis.culprits, diagnosis.confidence) == ("data_loading", (FAULTY,), "high")
    assert diagnosis.world_size == RANKS
    assert diagnosis.location is not None
    assert diagnosis.location.line == line_of(HANGING_LINE)
    assert diagnosis.location.source == HANGING_LINE


def test_the_rank_that_raised_is_the_root_and_the_others_were_seen_before_mpirun_ended_them(
    lives: Lives,
) -> None:
    (root,) = [one for one in lives.data("worker.failed") if one.get("root")]
    assert (root["rank"], root["exit_code"]) == (FAULTY, 1)
    assert root["message"] == "ValueError: bad sample"
    diagnosis = lives.of("Exited").diagnosis()
    assert diagnosis.culprits == (FAULTY,)
    assert [rank.rank for rank in diagnosis.ranks if rank.waits_for == (FAULTY,)] == [0, 2]


def test_the_ranks_of_the_job_are_those_of_mpirun_wherever_it_is_looked_at(lives: Lives) -> None:
    (found,) = lives.found
    assert {rank.rank: rank.pid for rank in found.ranks} == lives.workers
    assert sorted(lives.workers) == list(range(RANKS))
    assert found.world_size == RANKS
    cycles = lives.data("cycle.ended")
    assert [(one["world_size"], one["ranks"]) for one in cycles[:3]] == [(RANKS, list(range(RANKS)))] * 3
    assert all(one["steps"] > 0 for one in cycles[:3])


def test_no_process_of_any_life_is_left(lives: Lives) -> None:
    seen = [snapshot for one in lives.incidents() if (snapshot := one.snapshot("a")) is not None]
    processes = {(rank.pid, rank.facts.start_ticks) for one in seen for rank in one.ranks if rank.facts}
    assert len(processes) >= 2 * RANKS - 1
    assert not [pid for pid, started in processes if proc.start_ticks(pid) == started]
