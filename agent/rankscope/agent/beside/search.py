"""Finds the jobs that the user wants watched, again and again: a restart has other processes.

``diag.discover`` knows which processes are ranks; here is only what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankscope.agent.beside.launchers import Origin, is_launcher, lives, origin_of
from rankscope.diag import proc
from rankscope.diag.chosen import find_named
from rankscope.diag.discover import FoundJob, find_jobs, jobs_exactly, jobs_named, may_train, ranks_of_pids
from rankscope.diag.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Ranks that were found behind the processes named, by their launch: its name may be another's too."""

    origin: Origin
    ranks: frozenset[int]


class Search:
    """Looks for what was named.

    Args:
        name: run id, its unambiguous beginning, or a job folder; ``None`` for any.
        pids: ranks, launchers, or any process below which ranks run or will; empty for any.

    Attributes:
        problems: lines about processes that are not what was asked for, as of the last search.
    """

    def __init__(self, name: str | None, pids: Sequence[int] = ()) -> None:
        self._name = name
        self._pinned = False
        self._pids = tuple(pids)
        self._ticks = {pid: proc.start_ticks(pid) for pid in pids}
        self._wanted: tuple[_Wanted, ...] = ()
        self._assumed: FoundJob | None = None
        self._searched = False
        self.problems: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether nothing was named: all jobs of the host are meant, those to come too."""
        return self._name is None and not self._pids

    @property
    def may_come(self) -> bool:
        """Whether ranks may come although there are none: a process that was named lives.

        Once there were some, it must be a launcher, or no Python at all (a shell script around launches): a
        notebook that has seen its workers end does not start others for our sake.
        """
        if self.is_open:
            return True
        living = self._living()
        if not self._wanted:
            return bool(living) and self._assumed is None
        return any(_launches(pid) or proc.is_python(pid) is False for pid in living)

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
        if self._pinned:
            return jobs_exactly(name, find_jobs())
        try:
            jobs = find_named(name).jobs
        except UsageError:
            jobs = jobs_named(name)
        if jobs and jobs[0].job_dir is None:
            # Another job that begins like this one is not meant.
            self._name, self._pinned = jobs[0].run_id or jobs[0].job, True
        return jobs

    def _of_pids(self) -> tuple[FoundJob, ...]:
        found = ranks_of_pids(self._living() if self._searched else self._pids)
        self._searched = True
        self.problems = found.problems
        jobs = tuple(job for job in found.jobs if not job.assumed)
        if not jobs and not self._wanted:
            return self._taken_at_their_word(found.jobs)
        here = [(job, origin_of(job)) for job in jobs]
        lost = [one for one in self._wanted if not any(one.origin.is_same(origin) for _job, origin in here)]
        for job, origin in here:
            self._remember(job, origin)
        return (*jobs, *_started_again(lost))

    def _taken_at_their_word(self, found: Sequence[FoundJob]) -> tuple[FoundJob, ...]:
        """Processes of which nothing but the user says that they are ranks: the same ones, to their end.

        Only those that have torch; any other that was named may yet start ranks.
        """
        if self._assumed is None:
            likely = (job for job in found if all(may_train(rank.pid) for rank in job.ranks))
            self._assumed = next(likely, None)
        job = self._assumed
        return (job,) if job and any(lives(rank.pid, rank.start_ticks) for rank in job.ranks) else ()

    def _remember(self, job: FoundJob, origin: Origin) -> None:
        known = [one for one in self._wanted if one.origin.is_same(origin)]
        ranks = frozenset(rank.rank for rank in job.ranks).union(*(one.ranks for one in known))
        others = tuple(one for one in self._wanted if one not in known)
        self._wanted = (*others, _Wanted(origin, ranks))

    def _living(self) -> tuple[int, ...]:
        """The processes named that still run."""
        return tuple(pid for pid, ticks in self._ticks.items() if ticks is not None and lives(pid, ticks))


def _started_again(lost: Sequence[_Wanted]) -> tuple[FoundJob, ...]:
    """The same ranks of the same launches, as other processes than those that were named."""
    found: list[FoundJob] = []
    for job in find_jobs() if lost else ():
        origin = origin_of(job)
        for one in lost:
            ranks = tuple(rank for rank in job.ranks if rank.rank in one.ranks)
            if ranks and one.origin.is_same(origin):
                found.append(replace(job, ranks=ranks))
                break
    return tuple(found)


def _launches(pid: int) -> bool:
    return is_launcher(proc.command_line(pid))
