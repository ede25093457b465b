"""When a job stands that nobody watches from inside: no step for long, against its own steps."""

from __future__ import annotations

from tests.faults.beside import Pace


def seen(*steps: tuple[float, int]) -> Pace:
    pace, text = Pace(), "start\n"
    for now, step in steps:
        text += f"step {step} loss 1.0\nthroughput 3\n"
        pace.note(text, now)
        pace.note(text, now + 0.1)
    return pace


def test_a_job_stands_when_no_step_came_for_so_long() -> None:
    pace = seen((10.0, 0), (10.25, 1), (10.5, 2))
    assert (pace.step, pace.stands(16.25, 6.0), pace.stands(16.5, 6.0)) == (2, False, True)


def test_lines_that_are_no_steps_do_not_count() -> None:
    pace = seen((10.0, 0), (10.2, 1))
    pace.note("step 0\nstep 1\nrank 1 at step 7\nstep_time 9\n", 15.0)
    assert (pace.step, pace.since) == (1, 10.2)


def test_a_job_whose_steps_are_long_is_waited_for_longer() -> None:
    pace = seen((10.0, 0), (20.0, 1), (24.0, 2), (28.0, 3))
    assert not pace.stands(39.9, 6.0)
    assert pace.stands(40.0, 6.0)
