"""One watched job: what is said of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from tests.capture_factory import waiting_process

from rankscope.agent.beside.job import SETTLED, JobWatch
from rankscope.agent.beside.log_files import LogFiles
from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, FoundRank
from rankscope.watchdog.limits import HangSettings


@contextmanager
def watched(job: FoundJob, said: list[str]) -> Generator[JobWatch]:
    watch = JobWatch(
        job,
        settings=HangSettings(),
        logs=LogFiles(()),
        say=said.append,
        on_event=lambda _event: None,
        on_hang=lambda: None,
    )
    try:
        yield watch
    finally:
        watch.close(ended=False)


def a_job(pid: int, *, here: tuple[range, ...] = ()) -> FoundJob:
    return FoundJob("a-job", (FoundRank(0, pid, proc.start_ticks(pid) or 0),), 3, here=here)


@pytest.mark.parametrize(
    ("here", "notes"),
    [
        ((), "2 on other hosts: not observed"),
        ((range(2),), "no process of 1 here; 1 on other hosts: not observed"),
        ((range(3),), "no process of 1-2 here"),
    ],
)
def test_where_the_other_ranks_are_is_said_and_no_records_are_promised(
    here: tuple[range, ...], notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", "/proc/nope")
    said: list[str] = []
    with waiting_process() as process:
        job = a_job(process.pid, here=here)
        with watched(job, said) as watch:
            watch.update(job, 0.0)
            watch.update(job, SETTLED)
    assert said[0].startswith("cannot write records to /proc/nope")
    assert said[1] == f"a-job: watching rank 0 of 3 ({notes}), without records"
