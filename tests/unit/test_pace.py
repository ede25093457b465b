"""The job's own pace: what is a slowdown, and what is an evaluation, a checkpoint, warm-up or noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from rankscope.agent.watching.pace import StepPace
from rankscope.diag.classify import Slowdown
from rankscope.watchdog.observations import RankObservation

TICK = 1.0


def followed(seconds: Iterable[float], *, first_step: int = 1) -> tuple[StepPace, list[Slowdown | None]]:
    """A pace that was told, once a second, of steps that take so long; and what it said each time."""
    pace, said = StepPace(), list[Slowdown | None]()
    now, tick, step = 100.0, 101.0, first_step - 1
    last = 0.0
    for one in seconds:
        while now + one > tick:
            tell(pace, step, last)
            said.append(pace.slowdown)
            tick += TICK
        now += one
        step, last = step + 1, now
    tell(pace, step, last)
    said.append(pace.slowdown)
    return pace, said


def tell(pace: StepPace, step: int, ended: float, *, rank: int = 0) -> None:
    pace.note([RankObservation(rank, probed=True, step=step)], {rank: ended})


def longer(before: float, now: float, *, at: int = 60, count: int = 200) -> list[float]:
    return [before] * at + [now] * (count - at)


@pytest.mark.parametrize("before", [0.02, 0.2, 1.5])
@pytest.mark.parametrize("times", [1.3, 2.0, 5.0])
def test_steps_that_take_longer_for_good_are_told_with_the_step_since_which(
    before: float, times: float
) -> None:
    count = max(200, int(60 / before))
    at = count // 2
    pace, _ = followed(longer(before, before * times, at=at, count=count))
    slowdown = pace.slowdown
    assert slowdown is not None
    assert slowdown.before == pytest.approx(before, rel=0.05)
    assert slowdown.now == pytest.approx(before * times, rel=0.05)
    assert abs(slowdown.since_step - at) <= 2 / before + 2  # a tick may lie between
    assert slowdown.extra_share == pytest.approx(1 - 1 / times, abs=0.05)


def test_a_slowdown_is_told_within_the_seconds_that_a_row_of_the_matrix_has() -> None:
    pace, said = followed(longer(0.2, 0.5, at=30, count=70))
    assert pace.slower_since == pytest.approx(100 + 30 * 0.2, abs=1.2)
    first = next(number for number, one in enumerate(said) if one is not None)
    assert first * TICK - 30 * 0.2 <= 15


HEALTHY: dict[str, list[float]] = {
    "as ever": [0.2] * 300,
    "a little longer": longer(0.2, 0.22),
    "warm-up": [20.0, 3.0, 1.0, *[0.2] * 300],
    "evaluations": [10.0 if step % 20 == 19 else 0.2 for step in range(300)],
    "a checkpoint of a minute": [60.0 if step == 100 else 0.2 for step in range(300)],
    "checkpoints": [4.0 if step % 50 == 49 else 0.2 for step in range(300)],
    "two sorts of batches": [0.9 if step % 3 else 0.2 for step in range(300)],
    "gradients gathered over eight": [1.0 if step % 8 == 7 else 0.1 for step in range(300)],
    "quicker": longer(0.4, 0.2),
    "three slow steps": [*[0.2] * 100, 1.0, 1.0, 1.0, *[0.2] * 100],
    "a slow start": longer(0.5, 0.2, at=5),
}


@pytest.mark.parametrize("what", HEALTHY)
def test_what_is_long_now_and_then_is_no_slowdown(what: str) -> None:
    _, said = followed(HEALTHY[what])
    assert said[-1] is None
    assert not any(said)


NOISE: dict[str, Callable[[random.Random], float]] = {
    "jitter": lambda chance: max(0.05, chance.gauss(0.2, 0.05)),
    "heavy tail": lambda chance: min(10.0, 0.06 * chance.paretovariate(1.1)),
    "bursts": lambda chance: 0.2 * (3 if chance.random() < 0.1 else 1),
}


@pytest.mark.parametrize("shape", NOISE)
def test_noise_is_no_slowdown(shape: str) -> None:
    """A slowdown has the job looked at, no more: once in 20 jobs of 400 steps that costs nothing."""
    said = 0
    for seed in range(20):
        chance = random.Random(f"{shape} {seed}")
        said += any(followed([NOISE[shape](chance) for _ in range(400)])[1])
    assert said <= 1


def test_it_is_over_when_most_steps_are_as_ever() -> None:
    pace, said = followed([*longer(0.2, 0.5, at=60, count=120), *[0.2] * 120])
    assert any(said)
    assert pace.slowdown is None
    assert pace.before == pytest.approx(0.2, rel=0.1)


def test_steps_before_the_slow_ones_are_the_measure_however_long_it_lasts() -> None:
    pace, _ = followed(longer(0.2, 0.5, at=60, count=2000))
    slowdown = pace.slowdown
    assert slowdown is not None
    assert slowdown.before == pytest.approx(0.2, rel=0.05)


def test_a_restart_forgets_everything() -> None:
    pace, _ = followed(longer(0.2, 0.5))
    pace.restart()
    assert pace.slowdown is None
    assert pace.before is None


def test_another_rank_is_followed_when_the_first_has_ended() -> None:
    pace = StepPace()
    for step in range(40):
        both: Sequence[RankObservation] = [
            RankObservation(0, alive=step < 10, step=step),
            RankObservation(1, step=step),
        ]
        pace.note(both, {0: 100.0 + step, 1: 100.2 + step})
    assert pace.before == pytest.approx(1.0, abs=0.05)
    assert pace.slowdown is None


def test_a_job_without_steps_has_no_pace() -> None:
    pace = StepPace()
    for second in range(60):
        pace.note([RankObservation(0)], {0: 0.0})
        pace.note([], {})
        del second
    assert pace.before is None
