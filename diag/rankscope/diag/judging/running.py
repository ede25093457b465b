"""The diagnosis of a job that runs: looks are taken until they tell."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path

from rankscope.diag.classify import Catalogue, SlowLook, diagnose
from rankscope.diag.discover.found import FoundJob
from rankscope.diag.judging.catalogue import catalogue_of
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.wanted import Wanted
from rankscope.diag.live import source_line, take_closer, take_many, take_pair
from rankscope.diag.look_times import INTERVAL, SLOW_INTERVAL
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.quick_looks import quick_looks
from rankscope.diag.settled import Pair, settle
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.job import JobFolder


def judge_running(job: FoundJob, wanted: Wanted, stop: threading.Event) -> Judged:
    """Look at a job and explain it.

    Args:
        job: its ranks on this host.
        wanted: how.
        stop: ends it between two looks.

    Raises:
        UsageError: the named catalogue cannot be read.
    """
    catalogue = catalogue_of(wanted, job.job_dir)
    folder = JobFolder(Path(job.job_dir)) if job.job_dir is not None else None
    judge = _judge_pace if wanted.samples else _judge_standing
    diagnosis, look = judge(job, wanted, catalogue, stop)
    return Judged(diagnosis, look=look, folder=folder)


def _judge_pace(
    job: FoundJob, wanted: Wanted, catalogue: Catalogue, stop: threading.Event
) -> tuple[Diagnosis, JobSnapshot]:
    looks = take_many(
        job,
        count=wanted.samples or 0,
        interval=wanted.interval or SLOW_INTERVAL,
        timeout=wanted.timeout,
        stop=stop,
    )
    diagnosis = diagnose(
        (looks[0], looks[-1]),
        catalogue=catalogue,
        source_line=source_line,
        time=iso_time(time.time()),
        samples=looks[1:-1],
        slow=SlowLook(),
    )
    return diagnosis, looks[-1]


def _judge_standing(
    job: FoundJob, wanted: Wanted, catalogue: Catalogue, stop: threading.Event
) -> tuple[Diagnosis, JobSnapshot]:
    pair = take_pair(
        job,
        timeout=wanted.timeout,
        interval=wanted.interval or INTERVAL,
        native=wanted.native,
        local_variables=wanted.locals,
        catalogue=catalogue,
        stop=stop,
    )
    last: list[JobSnapshot] = [pair[-1]]

    def judge(looks: Pair, samples: tuple[JobSnapshot, ...]) -> Diagnosis:
        now = iso_time(time.time())
        last[:] = looks[-1:]
        return diagnose(looks, catalogue=catalogue, source_line=source_line, time=now, samples=samples)

    diagnosis = settle(
        pair,
        judge=judge,
        quick=functools.partial(quick_looks, job, timeout=wanted.timeout, stop=stop),
        again=functools.partial(
            take_closer,
            job,
            timeout=wanted.timeout,
            native=wanted.native,
            local_variables=wanted.locals,
            catalogue=catalogue,
        ),
    )
    return diagnosis, last[0]
