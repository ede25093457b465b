"""The job that is looked at, through restarts: found again when its processes have gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rankscope.diag import proc
from rankscope.diag.chosen import find_named, jobs_of_pids
from rankscope.diag.discover.found import FoundJob, FoundRank
from rankscope.diag.errors import UsageError
from rankscope.diag.live import is_running, running_job
from rankscope.diag.store.job import JobFolder

_SOON: Final = 1.0
"""Seconds after which processes that have gone are looked for again."""
_LATER: Final = 30.0
"""Seconds after which it is looked for new ones although none has gone."""


class Following:
    """One job.

    Attributes:
        job: its ranks on this host, ``None`` while there are none.
        folder: its records, ``None`` without.
    """

    def __init__(self, name: str | None, pids: Sequence[str]) -> None:
        """Find the job.

        Raises:
            UsageError: there is no such job, or it does not run on this host.
        """
        self._name = name
        self._pids = pids
        self._looked = time.monotonic()
        self.folder: JobFolder | None = None
        self.job = self._first()

    @property
    def run_id(self) -> str:
        """What the job is called."""
        if self.job is not None:
            return self.job.job
        return self.folder.run_id if self.folder is not None else str(self._name)

    @property
    def name(self) -> str | None:
        """What the user called it, ``None`` when by its processes."""
        return self._name

    def now(self) -> FoundJob | None:
        """The job's ranks now."""
        passed = time.monotonic() - self._looked
        if passed > _LATER or (passed > _SOON and not self._all_live()):
            self._looked = time.monotonic()
            found = self._again()
            if found is not None:
                self.job = found
        return self.job

    def rank(self, number: int | None) -> FoundRank | None:
        """The process of a rank."""
        ranks = self.job.ranks if self.job is not None else ()
        return next((rank for rank in ranks if rank.rank == number), None)

    def _all_live(self) -> bool:
        ranks = self.job.ranks if self.job is not None else ()
        return bool(ranks) and all(proc.start_ticks(rank.pid) == rank.start_ticks for rank in ranks)

    def _first(self) -> FoundJob | None:
        if self._pids:
            return _only(jobs_of_pids(self._pids).jobs)
        found = find_named(str(self._name))
        self.folder = found.folder
        if not found.jobs and (found.folder is None or not is_running(found.folder)):
            run_id = found.folder.run_id if found.folder is not None else self._name
            raise UsageError(
                f"job {run_id} does not run on this host", hint=f"diag history {run_id} shows what is stored"
            )
        return _only(found.jobs) if found.jobs else None

    def _again(self) -> FoundJob | None:
        try:
            if self.folder is not None and is_running(self.folder):
                return running_job(self.folder)
            if self._pids:
                return None  # a process that was named is gone for good
            found = find_named(str(self._name))
        except UsageError:
            return None
        return found.jobs[0] if len(found.jobs) == 1 else None


def _only(jobs: Sequence[FoundJob]) -> FoundJob:
    if len(jobs) > 1:
        names = ", ".join(sorted({job.job for job in jobs}))
        raise UsageError(
            f"that is {len(jobs)} jobs ({names}), and top shows one", hint="name its processes: --pid"
        )
    return jobs[0]
