"""How fast ranks train under ``diag run``, beside the same under torchrun; what our processes take. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from benchmarks.interval import LEAST_PAIRS, Interval, interval_of
from tests.soak.line import Line
from tests.soak.samples import RankLook, Sample

SLOWER: Final = 0.02
SLOWER_SHORT: Final = 0.05
"""A step may take so much longer than under torchrun; in a short soak the noise is larger."""
_WINDOWS: Final = 48
"""Into so many the time is divided for the interval: more are not more certain."""


def speed(samples: Sequence[Sample], tolerance: float) -> Iterator[Line]:
    """The time of a step under ``diag run``, over that of the same under torchrun in the same seconds.

    The whole step is held against the bar, with its sleep, which stands for an accelerator's work. The rest
    is shown alone, too: a hook of 50 us, which is what it costs after a sleep, is a large share of that.
    """
    whole, seconds = _ratio(samples, _whole), samples[-1].at - samples[0].at
    work = _ratio(samples, _work)
    bar = f"interval from <= +{tolerance:.0%}"
    if whole is None or work is None:
        yield Line("a step, against torchrun", f"not both trained all of {seconds:.0f} s", bar, ok=False)
        return
    yield Line("a step, against torchrun", _shown(whole), bar, ok=whole.low <= 1 + tolerance)
    ours, peer = (_over_all(samples, _work, control=control) for control in (False, True))
    found = f"{_shown(work)}: {ours * 1e3:.2f} ms, torchrun's {peer * 1e3:.2f} ms"
    yield Line("a step without its sleep", found, "none", ok=True)
    rates = [1 / _over_all(samples, _whole, control=control) for control in (False, True)]
    yield Line("steps a second of a rank", f"{rates[0]:.1f}, torchrun's {rates[1]:.1f}", "none", ok=True)


_StepTime = Callable[[RankLook, RankLook, float], float]
"""Of a rank's first and last look in a window of so many seconds: all that its steps took."""


def _whole(_first: RankLook, _last: RankLook, seconds: float) -> float:
    return seconds


def _work(first: RankLook, last: RankLook, _seconds: float) -> float:
    return (last.wall - first.wall) * 1e-9


def _ratio(samples: Sequence[Sample], of: _StepTime) -> Interval | None:
    """Ours over the peer's, of all windows in which both made steps; ``None`` when those are too few."""
    every = max(1, (len(samples) - 1) // _WINDOWS)
    logs: list[float] = []
    for before, after in pairwise(samples[::every]):
        ours, peers = (_step_time(before, after, of, control=control) for control in (False, True))
        if ours and peers:
            logs.append(math.log(ours / peers))
    if len(logs) < LEAST_PAIRS:
        return None
    found = interval_of(logs)
    return Interval(math.exp(found.low), math.exp(found.middle), math.exp(found.high))


def _shown(ratio: Interval) -> str:
    low, middle, high = (f"{(end - 1) * 100:+.1f}" for end in (ratio.low, ratio.middle, ratio.high))
    return f"{middle} [{low}, {high}] %"


def _over_all(samples: Sequence[Sample], of: _StepTime, *, control: bool) -> float:
    return _step_time(samples[0], samples[-1], of, control=control)


def _step_time(before: Sample, after: Sample, of: _StepTime, *, control: bool) -> float:
    """Seconds of a step: the median of the ranks; 0 when nobody made one."""
    first, last = (sample.control_steps if control else sample.steps for sample in (before, after))
    found = [
        of(first[rank], last[rank], after.at - before.at) / made
        for rank in first.keys() & last.keys()
        if (made := last[rank].before - first[rank].before) > 0
    ]
    return statistics.median(found) if found else 0.0


def cpu(samples: Sequence[Sample]) -> Iterator[Line]:
    """What each process of ours takes of a core: ``make bench`` has a bar for an agent that is left alone."""
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    shares = {
        name: (last.ours[name].cpu - first.ours[name].cpu) / seconds
        for name in sorted(first.ours.keys() & last.ours.keys())
    }
    found = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    yield Line("CPU, of a core", found, "none", ok=True)
