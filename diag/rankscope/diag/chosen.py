"""Which jobs a user means: by process numbers, by name, or all of this host.

For the verbs that look at running jobs. It knows job folders and processes, not what is done with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.discover import (
    FoundJob,
    FoundPids,
    find_all,
    find_jobs,
    jobs_exactly,
    jobs_named,
    ranks_of_pids,
)
from rankscope.diag.errors import UsageError
from rankscope.diag.live import pids_of, running_job
from rankscope.diag.store.job import JobFolder, find_job

_PROCESSES: Final = re.compile(r"[0-9]+(,[0-9]+)*")


@dataclass(frozen=True, slots=True)
class NamedJob:
    """What a name means.

    Attributes:
        jobs: what runs on this host, empty when nothing does.
        folder: the job's records, ``None`` without.
    """

    jobs: tuple[FoundJob, ...]
    folder: JobFolder | None


def jobs_of_pids(texts: Sequence[str]) -> FoundPids:
    """The ranks behind ``--pid 12,13``, with a line for each oddity.

    Raises:
        UsageError: no number, or no training process among them.
    """
    try:
        pids = pids_of(texts)
    except ValueError:
        raise UsageError(f"--pid {','.join(texts)}: process numbers expected, as in --pid 12,13") from None
    found = ranks_of_pids(pids)
    if not found.jobs:
        why = f" ({'; '.join(found.problems)})" if found.problems else ""
        raise UsageError(f"--pid {','.join(texts)}: no training process there{why}")
    return found


def all_jobs(verb: str) -> FoundPids:
    """All training jobs of this host.

    Raises:
        UsageError: there is none.
    """
    found = find_all()
    if not found.jobs:
        why = f" ({'; '.join(found.problems)})" if found.problems else ""
        raise UsageError(
            f"no training job runs on this host{why}", hint=f"name one: diag {verb} RUN_ID, or --pid PID"
        )
    return found


def find_named(name: str) -> NamedJob:
    """What a name means, for every verb the same: a run id or its beginning, a job folder, or processes.

    What runs goes before what is stored: the workers of the folder's agents, then what this host runs under
    the name, then what a watch beside the job follows. A job that has ended has a folder and runs nothing.

    Raises:
        UsageError: there is no such job, or several begin like that.
    """
    trouble: UsageError | None = None
    folder: JobFolder | None = None
    try:
        folder = find_job(name)
    except UsageError as error:
        trouble = error
    if folder is not None:
        launched = running_job(folder)
        return NamedJob((launched,) if launched is not None else _beside(name, folder), folder)
    jobs = jobs_named(name) if name else ()
    if not jobs and _PROCESSES.fullmatch(name):
        jobs = jobs_of_pids([name]).jobs
    if not jobs and trouble is not None:
        raise trouble
    return NamedJob(jobs, None)


def _beside(name: str, folder: JobFolder) -> tuple[FoundJob, ...]:
    """What runs of a job that no agent of ours launched; never one that only begins like it."""
    jobs = find_jobs()
    found = jobs_exactly(name, jobs) or jobs_exactly(folder.run_id, jobs)
    watched = running_job(folder, by_watch=True) if not found else None
    return found if watched is None else (watched,)


def jobs_called(name: str) -> FoundPids:
    """The running jobs of a name.

    Raises:
        UsageError: there is no such job, several begin like that, or it does not run on this host.
    """
    found = find_named(name)
    if not found.jobs:
        run_id = found.folder.run_id if found.folder is not None else name
        raise UsageError(f"job {run_id} has no workers on this host just now")
    return FoundPids(found.jobs)
