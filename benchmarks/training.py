"""Rows about the cost to training (NUMBERS.md), end to end: one DDP script under ``diag run`` and torchrun.

Two ranks over gloo on the CPU, in pairs of runs whose order alternates, with default settings on both sides.
The script times its own steps (programs/ddp_training.py); each run gives one median and one mean step, each
pair one ratio, the pairs an interval (``interval``). A median step does not see what happens once a second,
so the mean stands beside it. Nothing here can tell 0.1 % from nothing: ``probe`` adds up the parts for that.

As a program, ``python -m benchmarks.training PAIRS STEPS [same]`` makes a short trial; ``same`` sets torchrun
against torchrun, which shows what this machine can resolve.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.interval import Interval, interval_of
from benchmarks.launchers import Launcher, launched
from benchmarks.row import Row

RANKS: Final = 2
PAIRS: Final = 12
"""From so many on, one spoilt pair does not spoil the interval (``interval``)."""
STEPS: Final = 150
WARM_UP: Final = 20
"""Steps at the beginning that count for nothing."""
BAR: Final = 0.001
RESOLUTION: Final = 0.01
"""Half an interval may be no longer: a wider one would be consistent with everything."""
START_BAR: Final = 0.3
_SCRIPT: Final = Path(__file__).parent / "programs" / "ddp_training.py"


class _Answer(msgspec.Struct):
    """What a rank of the script writes."""

    first_step_at: float
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class Run:
    """One job.

    Attributes:
        start: seconds from the launch to the end of its first step.
        steps: seconds of each step of rank 0 after the warm-up. Collectives keep the ranks in step.
    """

    start: float
    steps: tuple[float, ...]


def rows(pairs: int = PAIRS, steps: int = STEPS) -> list[Row]:
    """Measure: about three minutes on two quiet cores."""
    return table(measure(pairs, steps))


def measure(pairs: int, steps: int, *, ours: Launcher = "ours") -> list[tuple[Run, Run]]:
    """Pairs of ours and torchrun's; every second pair the other way round."""
    found: list[tuple[Run, Run]] = []
    for number in range(pairs):
        if number % 2:
            peer = run_once("torchrun", steps)
            found.append((run_once(ours, steps), peer))
        else:
            mine = run_once(ours, steps)
            found.append((mine, run_once("torchrun", steps)))
    return found


def run_once(launcher: Launcher, steps: int) -> Run:
    """Launch the script once and wait for its end.

    Raises:
        RuntimeError: the job failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers"
        begin = time.monotonic()
        script: list[str | Path] = [_SCRIPT, answers, str(WARM_UP + 1 + steps)]
        with launched(launcher, Path(folder) / launcher, ranks=RANKS, script=script) as job:
            if (code := job.finish()) != 0:
                raise RuntimeError(f"{launcher}: exit code {code}\n{job.stderr[-2000:]}")
        answer = msgspec.json.decode((answers / "0.json").read_bytes(), type=_Answer)
    return Run(answer.first_step_at - begin, tuple(answer.seconds[WARM_UP:]))


def table(pairs: Sequence[tuple[Run, Run]]) -> list[Row]:
    """What the pairs say.

    Raises:
        ValueError: too few pairs for an interval.
    """
    columns = [[mine.steps for mine, _ in pairs], [peer.steps for _, peer in pairs]]
    medians = [[statistics.median(steps) for steps in column] for column in columns]
    means = [[statistics.fmean(steps) for steps in column] for column in columns]
    median, mean = _ratio(*medians), _ratio(*means)
    resolved = median.half_width <= RESOLUTION
    return [
        Row(
            f"the same DDP script, {RANKS} ranks, median step",
            _percent(median),
            f"{statistics.median(medians[1]) * 1e3:.1f} ms (torchrun), {len(pairs)} pairs",
            median.middle,
            f"interval from <= +{BAR:.1%}, +-{RESOLUTION:.0%} or less",
            resolved and median.low <= 1 + BAR,
        ),
        Row(
            "the same, mean step: what comes once a second too",
            _percent(mean),
            f"{statistics.median(means[1]) * 1e3:.1f} ms",
            mean.middle,
            "none",
            ok=True,
        ),
        _start_row(pairs),
    ]


def _start_row(pairs: Sequence[tuple[Run, Run]]) -> Row:
    more = interval_of([mine.start - peer.start for mine, peer in pairs])
    ours, peer = (statistics.median(run.start for run in column) for column in zip(*pairs, strict=True))
    return Row(
        "start of that job, launch to first step",
        f"{ours:.2f} s, {more.middle:+.2f} s [{more.low:+.2f}, {more.high:+.2f}]",
        f"{peer:.2f} s (torchrun)",
        ours / peer,
        f"<= {START_BAR * 1e3:.0f} ms more, the whole interval",
        more.high <= START_BAR,
    )


def _ratio(ours: Sequence[float], peers: Sequence[float]) -> Interval:
    logs = interval_of([math.log(mine / peer) for mine, peer in zip(ours, peers, strict=True)])
    return Interval(math.exp(logs.low), math.exp(logs.middle), math.exp(logs.high))


def _percent(ratio: Interval) -> str:
    # No -0.00: what is added turns the negative zero.
    low, middle, high = (round((end - 1) * 100, 2) + 0.0 for end in (ratio.low, ratio.middle, ratio.high))
    return f"{middle:+.2f} % [{low:+.2f}, {high:+.2f}]"


if __name__ == "__main__":
    trial = measure(
        int(sys.argv[1]), int(sys.argv[2]), ours="torchrun" if sys.argv[3:] == ["same"] else "ours"
    )
    for pair in trial:
        print(*(f"{statistics.median(run.steps) * 1e3:.3f}" for run in pair), "ms a step")
    print("\n".join(row.line() for row in table(trial)))
