"""A job as ``prune`` looks at it: its row, its last sign of life, its size; and whether it may still go."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from rankscope.diag.history.here import Here, this_host
from rankscope.diag.jobs_list.order import last_sign
from rankscope.diag.jobs_list.read import read_row
from rankscope.diag.prune.plan import NOT_A_JOB, Stored, why_it_stays
from rankscope.diag.prune.sizes import folder_bytes
from rankscope.diag.store.job import JobFolder, newer_schema

_OF_A_JOB: Final = ("job.json", "nodes", "incidents")


def stored_of(path: Path, here: Here, *, now: float) -> Stored:
    """One job, from its folder."""
    return _stored(path, here, now=now, size=folder_bytes(path))


def may_still_go(path: Path) -> bool:
    """Whether nobody has begun to use a folder that was to be removed."""
    now = time.time()
    return not why_it_stays(_stored(path, this_host(), now=now, size=0), now=now)


def is_left_over(path: Path) -> bool:
    """Whether a folder under a hidden name is only what an interrupted run has left of a job."""
    now = time.time()
    return why_it_stays(_stored(path, this_host(), now=now, size=0), now=now) in ("", NOT_A_JOB)


def _stored(path: Path, here: Here, *, now: float, size: int) -> Stored:
    row = read_row(path, here, now=now)
    return Stored(
        row,
        last_sign(row) or _changed(path, now),
        size,
        is_job=any(os.path.lexists(path / name) for name in _OF_A_JOB),
        newer=newer_schema(JobFolder(path)),
    )


def _changed(path: Path, now: float) -> float:
    """When a folder without a readable time in it was changed last."""
    try:
        return max(os.lstat(each).st_mtime for each in (path, *path.glob("*"), *path.glob("nodes/*")))
    except OSError:
        return now
