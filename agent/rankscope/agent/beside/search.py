"""Finds the jobs that the user wants watched, again and again: a restart has other processes.

``diag.discover`` knows which processes are ranks; here is only what was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from rankscope.agent.beside.launchers import is_launcher
from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, find_jobs, jobs_named, ranks_of_pids
from rankscope.diag.errors import UsageError
from rankscope.diag.live import running_job
from rankscope.diag.store.job import JobFolder, find_job


class Search:
    """Looks for what was named.

    Args:
        name: run id, its unambiguous beginning, or a job folder; ``None`` for any.
        pids: ranks or launchers; empty for any.

    Attributes:
        problems: lines about processes that are not what was asked for, as of the last search.
    """

    def __init__(self, name: str | None, pids: Sequence[int] = ()) -> None:
        self._name = name
        self._pinned = False
        self._pids = tuple(pids)
        self._wanted: dict[str, frozenset[int]] = {}
        self.problems: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether nothing was named: all jobs of the host are meant, those to come too."""
        return self._name is None and not self._pids

    def jobs(self) -> tuple[FoundJob, ...]:
        """The jobs as they are now.

        Raises:
            UsageError: several jobs are called like that.
        """
        if self._pids:
            return self._of_pids()
        if self._name is None:
            return find_jobs()
        return self._named(self._name)

    def _named(self, name: str) -> tuple[FoundJob, ...]:
        folder: JobFolder | None = None
        with contextlib.suppress(UsageError):
            folder = find_job(name)
        running = running_job(folder) if folder is not None else None
        if running is not None and folder is not None and _has_agent(folder):
            return (replace(running, job_dir=str(folder.path)),)
        jobs = jobs_named(name) or (jobs_named(folder.run_id) if folder is not None else ())
        if jobs and not self._pinned:
            # Another job that begins like this one is not meant.
            self._name, self._pinned = jobs[0].run_id or jobs[0].job, True
        return jobs

    @property
    def may_come(self) -> bool:
        """Whether there is nothing yet and yet something to wait for: a launcher that was named lives."""
        return self.is_open or any(_launches(pid) for pid in self._pids)

    def _of_pids(self) -> tuple[FoundJob, ...]:
        found = ranks_of_pids(self._pids)
        # A launcher between two launches is no rank, though it may be all that there is.
        jobs = tuple(job for job in found.jobs if not any(_launches(rank.pid) for rank in job.ranks))
        if jobs and (not self._wanted or any(job.job in self._wanted for job in jobs)):
            self.problems = found.problems
            self._wanted = {job.job: frozenset(rank.rank for rank in job.ranks) for job in jobs}
            return jobs
        # Those processes are gone: the same ranks of the same jobs, started again, are meant.
        return tuple(
            replace(job, ranks=tuple(rank for rank in job.ranks if rank.rank in self._wanted[job.job]))
            for job in find_jobs()
            if any(rank.rank in self._wanted.get(job.job, ()) for rank in job.ranks)
        )


def _launches(pid: int) -> bool:
    return is_launcher(proc.command_line(pid))


def _has_agent(folder: JobFolder) -> bool:
    """Whether an agent of ``diag run`` keeps the folder, and not a watch like us."""
    return any(agent.page or agent.port for agent in folder.agents())
