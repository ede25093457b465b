"""Whether a place that a user names lies among the stored jobs: what is there would be taken for theirs."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.diag.errors import UsageError
from rankscope.diag.store.job import home


def check_outside_jobs(path: Path, *, flag: str = "") -> None:
    """Find out whether something may be written somewhere; links are followed.

    Args:
        path: where.
        flag: that named it, ``""`` for none.

    Raises:
        UsageError: it is among the stored jobs.
    """
    jobs = Path(os.path.realpath(home() / "jobs"))
    place = Path(os.path.realpath(path))
    for folder in (place, *place.parents):
        if folder == jobs or _holds_a_job(folder):
            what = "the stored jobs" if folder == jobs else "the records of a job"
            named = f"{flag} {path}".lstrip()
            raise UsageError(f"{named}: {folder} has {what}; name a place outside of it")


def _holds_a_job(folder: Path) -> bool:
    try:
        return (folder / "job.json").is_file() and (folder / "nodes").is_dir()
    except OSError:
        return False
