"""Which jobs go, and why the others stay. Pure.

``--older-than`` and ``--max-size`` choose; ``--keep`` and ``--keep-incidents`` protect, and ``--keep`` alone
chooses all but those it protects. A job that runs, or may run elsewhere, stays whatever was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.history.state import QUIET
from rankscope.diag.jobs_list.model import JobRow

RUNS: Final = "runs"
ELSEWHERE: Final = "may run on another host: it was heard within a day"
CHANGED: Final = "nothing tells whether it runs, and it was begun or changed within a day"
NOT_A_JOB: Final = "not a job, left"
NEWER: Final = "left to the version that wrote it"
NEWEST: Final = "among the newest"
INCIDENTS: Final = "has incidents"


@dataclass(frozen=True, slots=True)
class Limits:
    """What was asked for.

    Attributes:
        older_than: seconds since the last sign of life.
        max_size_bytes: that all jobs may take together.
        keep: how many of the newest stay.
        keep_incidents: whether jobs with incidents stay.
    """

    older_than: float | None = None
    max_size_bytes: int | None = None
    keep: int | None = None
    keep_incidents: bool = False

    @property
    def chooses(self) -> bool:
        """Whether anything says what is to go."""
        return any(limit is not None for limit in (self.older_than, self.max_size_bytes, self.keep))


@dataclass(frozen=True, slots=True)
class Stored:
    """One job.

    Attributes:
        heard: unix time of its last sign of life, or else of the last change of its folder.
        size_bytes: what it takes on the disk.
        is_job: whether there is anything of a job in it.
        newer: that a newer version wrote it, ``""`` when none did: what it says cannot be relied on.
    """

    row: JobRow
    heard: float
    size_bytes: int
    is_job: bool = True
    newer: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes, the oldest first, and of what would go but stays, why."""

    goes: tuple[Stored, ...]
    stays: tuple[tuple[Stored, str], ...]


def plan_of(jobs: Sequence[Stored], limits: Limits, *, now: float) -> Plan:
    """Decide.

    Args:
        jobs: all that are stored; folders that are no jobs count for nothing, and are named.
        limits: what was asked for.
        now: unix time.
    """
    by_age = sorted((job for job in jobs if job.is_job), key=lambda job: (job.heard, job.row.job))
    newest = {id(job) for job in by_age[len(by_age) - limits.keep :]} if limits.keep else set[int]()
    goes: list[Stored] = []
    stays = [(job, NOT_A_JOB) for job in jobs if not job.is_job]
    total = sum_bytes(by_age)
    for job in by_age:
        if not _is_chosen(job, limits, now=now, total=total):
            continue
        reason = why_it_stays(job, now=now)
        if not reason and id(job) in newest:
            reason = NEWEST
        if not reason and limits.keep_incidents and job.row.incidents:
            reason = INCIDENTS
        if reason:
            stays.append((job, reason))
        else:
            goes.append(job)
            total -= job.size_bytes
    return Plan(tuple(goes), tuple(stays))


def why_it_stays(job: Stored, *, now: float) -> str:
    """Why a job may not be removed, ``""`` when it may."""
    if not job.is_job:
        return NOT_A_JOB
    if job.row.state == "running":
        return RUNS
    if job.newer:
        return f"{job.newer}: {NEWER}"
    if now - job.heard < QUIET:
        return {"silent": ELSEWHERE, "damaged": CHANGED}.get(job.row.state, "")
    return ""


def _is_chosen(job: Stored, limits: Limits, *, now: float, total: int) -> bool:
    if limits.older_than is not None and now - job.heard > limits.older_than:
        return True
    if limits.max_size_bytes is not None and total > limits.max_size_bytes:
        return True
    return limits.older_than is None and limits.max_size_bytes is None


def sum_bytes(jobs: Iterable[Stored]) -> int:
    """What jobs take together."""
    return sum(job.size_bytes for job in jobs)
