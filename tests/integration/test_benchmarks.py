"""The command behind ``make bench``: one quick row for real, and benchmarks that fail or do not end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
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
