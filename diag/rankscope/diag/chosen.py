"""Which running jobs of this host a user means: by process numbers, by name, or all of them.

For the verbs that look at running jobs. It knows job folders and processes, not what is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.discover import FoundPids, find_all, jobs_named, ranks_of_pids
from rankscope.diag.errors import UsageError
from rankscope.diag.live import pids_of, running_job
from rankscope.diag.store.job import find_job


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


def jobs_called(name: str) -> FoundPids:
    """The running jobs of a name: a run id or its beginning, or a job folder.

    Raises:
        UsageError: there is no such job, several begin like that, or it does not run on this host.
    """
    try:
        folder = find_job(name)
    except UsageError:
        jobs = jobs_named(name) if name else ()
        if not jobs:
            raise
        return FoundPids(jobs)
    running = running_job(folder)
    jobs = (running,) if running is not None else jobs_named(folder.run_id)
    if not jobs:
        raise UsageError(f"job {folder.run_id} has no workers on this host just now")
    return FoundPids(jobs)
