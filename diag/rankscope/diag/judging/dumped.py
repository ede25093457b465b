"""The diagnosis of dumps."""

from __future__ import annotations

import time

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.classify.other_processes import with_processes
from rankscope.diag.dumps import DumpedJob
from rankscope.diag.live import source_line
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import iso_time


def judge_dumped(job: DumpedJob, catalogue: Catalogue) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis, and what of the log lines nothing used with how often it came."""
    diagnosis = diagnose(
        job.pair,
        catalogue=catalogue,
        source_line=source_line,
        time=iso_time(job.pair[0].time or time.time()),
        samples=job.samples,
    )
    diagnosis = with_processes(diagnosis, job.others, job.titles, catalogue=catalogue)
    return with_log_facts(diagnosis, job.facts)
