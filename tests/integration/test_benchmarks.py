"""The command behind ``make bench``: quick rows for real, what pairs of runs allow to say, and failures."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks import training
from benchmarks.interval import interval_of
from benchmarks.launchers import MODULES, Launcher
from benchmarks.probe import Parts, cost_rows
from benchmarks.row import Row
from benchmarks.run import BENCHMARKS, Benchmark, BenchmarkError, measure

from rankscope.diag import proc

ROOT = Path(__file__).parents[2]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_benchmark_gives_its_rows_as_json_and_exit_status_0() -> None:
    done = _bench("--only", "start", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = msgspec.json.decode(done.stdout, type=list[Row])
    assert row.name == "start of diag --help"
    assert row.ratio > 1


def test_an_unknown_benchmark_is_a_usage_error_that_names_the_known_ones() -> None:
    done = _bench("--only", "no_such")
    assert done.returncode == 2
    assert all(benchmark.name in done.stderr for benchmark in BENCHMARKS)


def test_a_benchmark_that_fails_says_so() -> None:
    with pytest.raises(BenchmarkError, match="no_such: ended with 1"):
        measure(Benchmark("no_such", 60.0))


def test_a_benchmark_that_does_not_end_is_ended_with_all_its_processes() -> None:
    before = _our_processes()
    with pytest.raises(BenchmarkError, match="timers: no end within 4 s"):
        measure(Benchmark("timers", 4.0))
    assert _our_processes() <= before


def _our_processes() -> set[int]:
    return {pid for pid in proc.process_table() if "benchmarks.timers" in proc.command_line(pid)}


def test_a_short_row_is_printed_as_short_and_without_a_peers_figure_the_ratio_is_a_dash() -> None:
    line = Row("a row", "2 s", "not run", 0.0, "<= 1 s", ok=False).line()
    assert [cell.strip() for cell in line.split("  ") if cell.strip()] == [
        "a row", "2 s", "not run", "-", "<= 1 s", "short"
    ]  # fmt: skip


def test_an_interval_covers_the_truth_in_95_of_100_experiments_of_few_and_noisy_pairs() -> None:
    noise = random.Random(7)
    for pairs in (6, 8, 12):
        found = [
            interval_of([noise.gauss(0.0, 1.0) + _spike(noise) for _ in range(pairs)]) for _ in range(1_000)
        ]
        covered = sum(interval.low <= 0.0 <= interval.high for interval in found)
        assert covered >= 940, (pairs, covered)


def _spike(noise: random.Random) -> float:
    return noise.choice((-8.0, 8.0)) if noise.random() < 0.15 else 0.0


def test_an_interval_moves_with_the_difference_and_hardly_with_one_spoilt_pair() -> None:
    quiet = [0.001 * (number - 5.5) for number in range(12)]
    moved = interval_of([each + 0.5 for each in quiet])
    assert moved.middle == pytest.approx(0.5)
    assert 0.49 < moved.low < 0.5 < moved.high < 0.51
    assert interval_of([*quiet[:-1], 3.0]).high < 0.01


def test_five_pairs_are_too_few_for_an_interval() -> None:
    with pytest.raises(ValueError, match="5 pairs"):
        interval_of([0.1] * 5)


@pytest.mark.parametrize(
    ("ours", "verdict", "shown"),
    [
        ([1.000, 1.001, 0.999, 1.002, 0.998, 1.000, 1.001, 0.999], "ok", "+0.00 % ["),
        ([1.020, 1.021, 1.019, 1.022, 1.018, 1.020, 1.021, 1.019], "short", "+2.00 % ["),
        ([1.000, 1.300, 0.800, 1.200, 0.700, 1.100, 0.900, 1.000], "short", "["),
    ],
    ids=["no difference is ok", "two percent are short", "noise that hides everything is short"],
)
def test_the_training_row_says_what_the_pairs_allow_to_say(
    ours: list[float], verdict: str, shown: str
) -> None:
    pairs = [(training.Run(5.0, (each, each)), training.Run(5.0, (1.0, 1.0))) for each in ours]
    median, _mean, start = training.table(pairs)
    assert median.line().endswith(verdict)
    assert shown in median.ours
    assert start.ok


def test_a_start_that_takes_half_a_second_longer_is_short() -> None:
    step = (0.02, 0.02)
    pairs = [(training.Run(5.5 + jitter, step), training.Run(5.0, step)) for jitter in (0.0, 0.02) * 4]
    *_, start = training.table(pairs)
    assert not start.ok
    assert "+0.51 s [" in start.ours


def test_a_start_that_noise_hides_is_short() -> None:
    step = (0.02, 0.02)
    pairs = [(training.Run(5.0 + noise, step), training.Run(5.0, step)) for noise in (-3.0, 1.0, 2.0) * 2]
    assert not training.table(pairs)[-1].ok


def test_a_mean_shows_what_a_median_step_does_not_see() -> None:
    ours = training.Run(5.0, (*[0.01] * 99, 0.11))
    median, mean, _start = training.table([(ours, training.Run(5.0, (0.01,) * 100))] * 6)
    assert median.ours.startswith("+0.00 %")
    assert mean.ours.startswith("+10.00 %")


@pytest.mark.parametrize("launcher", MODULES)
def test_the_script_trains_under_either_launcher_and_times_its_steps(launcher: Launcher) -> None:
    run = training.run_once(launcher, steps=5)
    assert len(run.steps) == 5
    assert 0.0 < sum(run.steps) < run.start


def test_a_job_that_fails_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(training, "_SCRIPT", script)
    with pytest.raises(RuntimeError, match="torchrun: exit code 1"):
        training.run_once("torchrun", steps=5)


def test_the_cost_of_the_probe_is_the_sum_of_its_parts() -> None:
    parts = Parts(floor=1e-7, page=2e-7, hook=3e-7, monitor=4e-7, beat=1e-4, record=5e-5)
    total, *rest = cost_rows(parts, batch=6e-6, plain=5e-6)
    # 0.3 us and 1 us in 100 ms, 100 us in a second.
    assert total.ours.startswith("0.0113%")
    assert total.ok
    assert all(row.bar == "none" for row in rest)
    assert not cost_rows(parts, batch=1e-3, plain=1e-6)[0].ok
    # A batch that seems cheaper with the probe is noise and saves nothing.
    assert cost_rows(parts, batch=1e-6, plain=9e-6)[0].ours.startswith("0.0103%")
