"""What the workers of a launch have got done, told once as it grows."""

from __future__ import annotations

from rankscope.agent.observing.trained import Trained
from rankscope.agent.telling.progress import Progress


class Told:
    """What is read, and what was recorded."""

    def __init__(self) -> None:
        self.reads = Trained()
        self.records: list[tuple[int, int | None]] = []

    def record(self, *, steps: int, step: int | None) -> None:
        self.records.append((steps, step))


def begun() -> tuple[Told, Progress]:
    told = Told()
    progress = Progress(lambda: told.reads, told.record)
    progress.begin()
    return told, progress


def test_what_is_new_is_recorded_once() -> None:
    told, progress = begun()
    assert progress.now() == Trained()
    told.reads = Trained(steps=3, step=41, is_known=True)
    assert progress.now() == progress.now() == told.reads
    assert told.records == [(3, 41)]


def test_a_probe_that_speaks_is_no_progress() -> None:
    told, progress = begun()
    told.reads = Trained(is_known=True)
    assert progress.now().is_known
    assert told.records == []


def test_collectives_count_only_in_a_job_that_never_made_a_step() -> None:
    told, progress = begun()
    told.reads = Trained(collectives=7)
    progress.now()
    told.reads = Trained(steps=1, collectives=9)
    progress.now()
    progress.begin()
    told.reads = Trained(collectives=4)  # a new launch begins with some
    progress.now()
    assert told.records == [(7, None), (1, None), (0, None)]


def test_what_was_done_until_the_stop_counts_and_nothing_after_it() -> None:
    told, progress = begun()
    told.reads = Trained(steps=5)
    progress.end()
    assert not progress.are_running
    told.reads = Trained(steps=6)
    assert progress.now().steps == 6
    assert told.records == [(5, None)]


def test_new_workers_that_got_as_far_as_those_before_them_have_progressed() -> None:
    told, progress = begun()
    told.reads = Trained(steps=2)
    progress.end()
    progress.begin()
    assert progress.are_running
    progress.now()
    assert told.records == [(2, None), (2, None)]
