"""``make bench``: measures and prints ``name  ours  peer  ratio  bar  ok|short``, as benchmarks end.

Exit status: 0 when everything was measured, short rows included; 1 when a benchmark failed to run; 2 for a
wrong command line. The table (or, with ``--json``, one JSON list) is on stdout, messages are on stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence

import msgspec

from benchmarks.row import HEADINGS, Row, columns
from benchmarks.run import BENCHMARKS, NOT_BUILT, BenchmarkError, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    table = not options.json
    begin = time.monotonic()
    _say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if table:
        print(columns(HEADINGS), flush=True)
    found: list[Row] = []
    failures: list[str] = []
    for benchmark in BENCHMARKS:
        if options.only and benchmark.name not in options.only:
            continue
        try:
            rows = measure(benchmark)
        except BenchmarkError as error:
            failures.append(str(error))
            _say(f"failed: {error}")
            continue
        found += rows
        if table:
            print("\n".join(row.line() for row in rows), flush=True)
    if table and not options.only:
        print("\nnot built yet:", *(f"  {name}" for name in NOT_BUILT), sep="\n")
    if options.json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    short = sum(not row.ok for row in found)
    _say(
        f"{len(found)} rows in {time.monotonic() - begin:.0f} s, {short} short, {len(failures)} failed to run"
    )
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"run this one: {', '.join(names)}"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON list")
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"bench: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
