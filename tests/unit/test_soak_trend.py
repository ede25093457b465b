"""A slope that sees a leak however it leaks, and does not take noise, saw-teeth or a single jump for one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from tests.soak.growth import COUNT, MEMORY
from tests.soak.line import MIB
from tests.soak.trend import LEAST_SAMPLES, Allowance, trend_of

TIMES: Final = [float(second) for second in range(60)]
LEVEL: Final = 100 * MIB


def _values(value: Callable[[int], float]) -> list[float]:
    return [LEVEL + value(second) for second in range(len(TIMES))]


def _permits(values: Sequence[float], allowance: Allowance = MEMORY) -> bool:
    return allowance.permits(trend_of(TIMES, values))


NOISE: Final = random.Random(7)
FLAT: Final[dict[str, list[float]]] = {
    "constant": _values(lambda _second: 0.0),
    "noise of a mebibyte": _values(lambda _second: NOISE.uniform(-MIB, MIB)),
    "saw-teeth of 8 MiB": _values(lambda second: (second % 7) * 1.2 * MIB),
    "one jump of 3 MiB, near the beginning": _values(lambda second: 3 * MIB if second >= 8 else 0.0),
    "one jump of 3 MiB, near the end": _values(lambda second: 3 * MIB if second >= 52 else 0.0),
    "bursts of 50 MiB": _values(lambda second: 50 * MIB if second % 11 == 0 else 0.0),
    "shrinks": _values(lambda second: -second * MIB),
    "a cache that is full after a third": _values(lambda second: min(second, 20) * 0.05 * MIB),
}
GROWS: Final[dict[str, list[float]]] = {
    "50 KiB a second": _values(lambda second: second * 50 * 1024),
    "2 MiB every fifteen seconds": _values(lambda second: second // 15 * 2 * MIB),
    "50 KiB a second below saw-teeth": _values(lambda second: (second % 7) * MIB + second * 50 * 1024),
    "50 KiB a second below noise": _values(lambda second: NOISE.uniform(-MIB, MIB) + second * 50 * 1024),
    "fast first, slower later": _values(lambda second: 5 * MIB * (second / 60) ** 0.5),
    "slow first, faster later": _values(lambda second: 8 * MIB * (second / 60) ** 2),
}


@pytest.mark.parametrize("values", FLAT.values(), ids=FLAT)
def test_what_does_not_grow_is_flat(values: list[float]) -> None:
    assert _permits(values)


@pytest.mark.parametrize("values", GROWS.values(), ids=GROWS)
def test_what_leaks_grows(values: list[float]) -> None:
    assert not _permits(values)


@pytest.mark.parametrize(
    ("counts", "flat"),
    [
        ([20.0] * 60, True),
        ([20.0 + second % 5 for second in range(60)], True),
        ([20.0 + (second >= 30) for second in range(60)], True),
        ([20.0 + second // 20 for second in range(60)], False),
        ([20.0 + second % 5 + second / 20 for second in range(60)], False),
    ],
    ids=[
        "constant",
        "come and go",
        "one more for good",
        "one more every 20 s",
        "one more below coming and going",
    ],
)
def test_descriptors_may_come_and_go_and_not_become_more(counts: list[float], *, flat: bool) -> None:
    assert _permits(counts, COUNT) is flat


def test_in_an_hour_a_slower_leak_is_seen_than_in_a_minute() -> None:
    hour = [float(second) for second in range(0, 3600, 12)]
    slow = [second * 2.0 * 1024 for second in hour]
    assert not MEMORY.permits(trend_of(hour, slow))
    assert MEMORY.permits(trend_of(hour[:12], slow[:12]))


def test_the_trend_is_told_in_units_of_the_values_and_seconds() -> None:
    trend = trend_of(TIMES, [7.0 + 3.0 * second for second in TIMES])
    assert (trend.slope, trend.seconds, trend.growth, trend.growth_an_hour) == (3.0, 59.0, 177.0, 10_800.0)
    assert trend.level == 95.5


def test_many_samples_are_thinned_and_say_the_same() -> None:
    times = [second / 10 for second in range(5_000)]
    assert trend_of(times, [2.0 * time for time in times]).slope == pytest.approx(2.0)


def test_few_samples_allow_no_trend() -> None:
    few = LEAST_SAMPLES - 1
    with pytest.raises(ValueError, match="11 samples allow no trend, 12 do"):
        trend_of(TIMES[:few], TIMES[:few])
