"""``make faults``: runs the fault matrix, real jobs two at a time, and prints expected against found.

Exit status: 0 when every row is right, 1 when one is wrong, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType

from tests.faults import table, trial
from tests.faults.matrix import ROWS
from tests.faults.rows import SUITES, Found, Row, differences


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows that are asked for."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    rows = [row for row in rows if not options.suite or row.suite in options.suite]
    keep: Path | None = options.keep
    folder = Path(tempfile.mkdtemp(prefix="rankscope-faults-")) if keep is None else keep
    began = time.monotonic()
    print(table.heading(), flush=True)
    try:
        trials = _run_all(rows, folder, repeat=options.repeat, jobs=options.jobs)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    wrong = [
        row.name for row, found in trials.items() if any(differences(row.expected, one) for one in found)
    ]
    minutes = (time.monotonic() - began) / 60
    if len(rows) * options.repeat > 1:
        print(f"\n{table.summary(trials)}")
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "all right"
    print(f"\n{len(rows)} rows in {minutes:.1f} minutes, {verdict}")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"run this row: {', '.join(names)}"
    )
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="run the rows of this suite; may be repeated"
    )
    parser.add_argument("--repeat", type=_positive, default=1, metavar="N", help="run each row so often")
    parser.add_argument("--jobs", type=_positive, default=2, metavar="N", help="rows at a time (default: 2)")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep every job's records and output here"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _run_all(rows: Sequence[Row], folder: Path, *, repeat: int, jobs: int) -> dict[Row, list[Found]]:
    """Every row so often, printed as each trial ends."""
    trials: dict[Row, list[Found]] = {row: [] for row in rows}
    given_up = threading.Event()
    with ThreadPoolExecutor(jobs, thread_name_prefix="trial") as pool:
        running = {
            pool.submit(_run, row, folder / f"{row.name}-{number}-{time.monotonic_ns()}", given_up): row
            for number in range(repeat)
            for row in rows
        }
        try:
            for future in as_completed(running):
                row, found = running[future], future.result()
                trials[row].append(found)
                print(table.trial_lines(row, found), flush=True)
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)
    return trials


def _run(row: Row, folder: Path, given_up: threading.Event) -> Found:
    return trial.run(row, folder, given_up=given_up)


def _end(number: int, _frame: FrameType | None) -> None:
    """Leave through the context managers, which end the jobs."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
