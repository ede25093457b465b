"""``make faults``: runs the fault matrix, real jobs two at a time, and prints expected against found.

Exit status: 0 when every trial is right, 1 when one is wrong, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.faults import table, trial
from tests.faults.found import Found
from tests.faults.matrix import ROWS
from tests.faults.rows import MODES, SUITES, Answer, Row
from tests.faults.table import Outcome
from tests.faults.trial import Trial, trials_of
from tests.side_by_side import as_they_end, leave, positive

_SEEDS: Final = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that are asked for."""
    options = _parser().parse_args(arguments)
    if options.list:
        print(table.listed(_rows(options)))
        return 0
    seeds: list[int] = options.seed or [random.randrange(_SEEDS)]
    trials = list(_chosen(options, seeds))
    keep: Path | None = options.keep
    folder = Path(tempfile.mkdtemp(prefix="rankscope-faults-")) if keep is None else keep
    began = time.monotonic()
    drawn = f"seed {', '.join(map(str, seeds))}"
    print(f"{drawn}, {len(trials)} trials\n{table.heading()}", flush=True)
    outcomes: list[Outcome] = []
    try:
        for outcome in _run_all(trials, folder, jobs=options.jobs):
            outcomes.append(outcome)
            print(table.trial_lines(outcome), flush=True)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if options.results is not None:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(table.markdown(outcomes, title=f"The fault matrix, {drawn}"))
    if len(trials) > 1:
        print(f"\n{table.summary(outcomes)}")
    wrong = [outcome.trial.name for outcome in outcomes if outcome.wrong]
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "all right"
    print(f"\n{drawn}: {len(trials)} trials in {(time.monotonic() - began) / 60:.1f} minutes, {verdict}")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the rows, run nothing")
    parser.add_argument(
        "--only",
        action="append",
        choices=[row.name for row in ROWS],
        metavar="ROW",
        help="run this row; may be repeated",
    )
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="run the rows of this suite; may be repeated"
    )
    parser.add_argument("--mode", choices=MODES, help="under diag run, or beside torchrun (default: both)")
    parser.add_argument(
        "--fault-on",
        choices=["zero", "other"],
        help="rank 0 has the fault, or another one has it (default: once each)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        action="append",
        metavar="N",
        help="of ranks, world sizes, steps and names; may be repeated (default: one by chance)",
    )
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="run each trial so often")
    parser.add_argument(
        "--jobs", type=positive, default=2, metavar="N", help="so many at a time (default: 2)"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the table here, as Markdown")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep every job's records and output here"
    )
    return parser


def _rows(options: argparse.Namespace) -> list[Row]:
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    return [row for row in rows if not options.suite or row.suite in options.suite]


def _chosen(options: argparse.Namespace, seeds: Sequence[int]) -> Iterator[Trial]:
    zero = None if options.fault_on is None else options.fault_on == "zero"
    for seed in seeds:
        for row in _rows(options):
            for one in trials_of(row, seed, mode=options.mode, zero=zero):
                yield from (replace(one, number=number) for number in range(options.repeat))


def _run_all(trials: Sequence[Trial], folder: Path, *, jobs: int) -> Iterator[Outcome]:
    """Every trial, as it ends; those that want the machine for themselves come last."""
    together = [one for one in trials if not one.row.by_itself]
    run = partial(_run, folder=folder)
    yield from as_they_end(run, together, jobs=jobs)
    yield from as_they_end(run, [one for one in trials if one.row.by_itself], jobs=1)


def _run(one: Trial, given_up: threading.Event, *, folder: Path) -> Outcome:
    """A row that cannot be run is wrong, and the others are run."""
    try:
        expected, found = trial.run(one, folder / one.name, given_up=given_up)
    except Exception as error:  # noqa: BLE001 - a thread's edge; the table says what it was
        return Outcome(one, Answer("?"), Found(Answer("not run"), remark=f"{type(error).__name__}: {error}"))
    return Outcome(one, expected, found)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
