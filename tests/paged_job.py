"""A job folder whose agent is this process and whose ranks write a real page, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests import deadline

from rankscope.diag import proc
from rankscope.diag.store.events import TYPE_PREFIX, Event, EventLog, boot_name, clock_text, iso_time
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder, WorkerFile, job_folder
from rankscope.watchdog.page import create_page

PROGRAM = Path(__file__).parent / "integration" / "programs" / "page_rank.py"
DEADLINE = deadline.DEADLINE


@dataclass
class PagedJob:
    """The job, its ranks' processes and its event log."""

    folder: JobFolder
    ranks: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])
    number: int = 0

    def event(self, name: str, **data: object) -> None:
        """Add an event of its agent."""
        self.number += 1
        log = EventLog(self.folder.node("vm") / "events.jsonl")
        log.append(
            Event(
                id=f"e{self.number}",
                source="vm",
                type=TYPE_PREFIX + name,
                time=iso_time(1_800_000_000 + self.number),
                data=data,
                sequence=f"{self.number:010d}",
                clock=clock_text(boot_name(), float(self.number)),
            )
        )
        log.close()


@contextmanager
def a_paged_job(
    home: Path, paces: Sequence[float], run_id: str = "run-7", world_size: int | None = None
) -> Generator[PagedJob]:
    """A running job of one node.

    Args:
        home: root of the records.
        paces: seconds a step of each rank; negative: it stands in a collective.
        run_id: of the job.
        world_size: ranks of the whole job.
    """
    job = PagedJob(job_folder(run_id, home))
    node = job.folder.node("vm")
    node.mkdir(parents=True)
    page = home / "progress.page"
    create_page(page, len(paces))
    try:
        for slot, pace in enumerate(paces):
            command = [sys.executable, str(PROGRAM), str(page), str(slot), str(pace)]
            job.ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for rank in job.ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "up\n"
        workers = tuple(
            WorkerFile(rank=number, local_rank=number, pid=rank.pid, start_ticks=ticks(rank.pid))
            for number, rank in enumerate(job.ranks)
        )
        agent = AgentFile(
            node="vm",
            pid=os.getpid(),
            start_ticks=ticks(os.getpid()),
            phase="running",
            page=str(page),
            workers=workers,
            world_size=world_size or len(paces),
        )
        (node / "agent.json").write_bytes(msgspec.json.encode(agent))
        made = JobFile(run_id, "2026-11-29T10:00:00.000Z", ("train.py",), "1:1", world_size or len(paces))
        job.folder.job_file.write_bytes(msgspec.json.encode(made))
        job.event("job.started", command=["train.py"], nodes="1:1", pid=os.getpid())
        job.event("cycle.started", restart_count=0, world_size=len(paces), ranks=[*range(len(paces))])
        yield job
    finally:
        for rank in job.ranks:
            rank.kill()
            rank.communicate(timeout=DEADLINE)


def ticks(pid: int) -> int:
    """Start time of a process that runs."""
    found = proc.start_ticks(pid)
    assert found is not None
    return found
