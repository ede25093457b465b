"""``make faults``: runs the fault matrix, one real job after the other, and prints expected against found.

Exit status: 0 when every row is right, 1 when one is wrong, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.faults import trial
from tests.faults.matrix import ANYWHERE, ROWS, Answer, Row

_WIDTHS = (17, 9, 16, 9, 13, 14)
_HEADINGS = ("row", "", "class", "culprit", "kind", "function")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows that are asked for."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    keep: Path | None = options.keep
    folder = Path(tempfile.mkdtemp(prefix="rankscope-faults-")) if keep is None else keep
    begin = time.monotonic()
    print(_line(_HEADINGS, "seconds"), flush=True)
    try:
        wrong = [row.name for row in rows if not _run(row, folder)]
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    minutes = (time.monotonic() - begin) / 60
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
        "--keep", type=Path, metavar="FOLDER", help="keep every job's records and output here"
    )
    return parser


def _run(row: Row, folder: Path) -> bool:
    found = trial.run(row, folder / f"{row.name}-{time.monotonic_ns()}")
    wrong = row.expected.differs_in(found.answer)
    print(_line((row.name, "expected", *_cells(row.expected)), ""))
    seconds = "-" if found.seconds is None else f"{found.seconds:.1f}"
    print(
        _line(("", "found", *_cells(found.answer)), seconds), f"wrong: {', '.join(wrong)}" if wrong else "ok"
    )
    if wrong:
        print(f"    {row.what}")
    if found.remark and (wrong or found.seconds is None):
        print(f"    {found.remark}")
    sys.stdout.flush()
    return not wrong


def _cells(answer: Answer) -> tuple[str, ...]:
    function = "any" if answer.function == ANYWHERE else answer.function
    return (answer.verdict, answer.culprits, answer.kind, function)


def _line(cells: Sequence[str], seconds: str) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join((*padded, seconds.rjust(7)))


def _end(number: int, _frame: FrameType | None) -> None:
    """Leave through the context managers, which end the job."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
