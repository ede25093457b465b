"""``make soak``: an agent and eight ranks for an hour, with captures, requests and notices all the time.

Prints a table of what was found and what the bar is. Exit status: 0 when every line is right, 1 when one is
not, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import msgspec
from tests.side_by_side import leave, positive
from tests.soak.judge import judged
from tests.soak.line import Line
from tests.soak.plan import Kind, Plan, checked
from tests.soak.run import run

_DEFAULTS: Final = Plan()
_WIDTHS: Final = (47, 60, 34)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and say what came of it."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        plan = checked(_plan(options))
    except ValueError as error:
        parser.error(str(error))
    keep: Path = options.keep or Path(tempfile.mkdtemp(prefix="rankscope-soak-"))
    keep.mkdir(parents=True, exist_ok=True)
    seen = run(plan, keep, lambda text: print(text, file=sys.stderr, flush=True))
    lines = judged(seen)
    (keep / "seen.json").write_bytes(msgspec.json.encode(seen))
    if options.json:
        print(msgspec.json.encode(lines).decode())
    else:
        print(table(lines))
    wrong = [line.name for line in lines if not line.ok]
    if wrong:
        print(f"wrong: {'; '.join(wrong)}. Kept: {keep}", file=sys.stderr)
    elif options.keep is None:
        shutil.rmtree(keep, ignore_errors=True)
    return 1 if wrong else 0


def table(lines: Sequence[Line]) -> str:
    """The lines for a person."""
    rows = [
        ("", "found", "bar", ""),
        *((one.name, one.found, one.bar, "ok" if one.ok else "wrong") for one in lines),
    ]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=False)), row[-1]]).rstrip()
        for row in rows
    )


def _plan(options: argparse.Namespace) -> Plan:
    control = options.workers if options.control is None else options.control
    return replace(
        _DEFAULTS,
        seconds=options.seconds,
        kind=options.kind,
        workers=options.workers,
        control=control,
        step_time=options.step_time,
        capture_every=options.capture_every,
        rate=options.rate,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=_DEFAULTS.seconds, metavar="S", help="so long (default: 3600)"
    )
    parser.add_argument(
        "--kind",
        choices=get_args(Kind),
        default=_DEFAULTS.kind,
        help="torch: optimizer steps, a collective in every tenth; plain: no torch in ranks (default: torch)",
    )
    parser.add_argument(
        "--workers", type=positive, default=_DEFAULTS.workers, metavar="N", help="under diag run (default: 8)"
    )
    parser.add_argument(
        "--control", type=positive, metavar="N", help="under torchrun beside them (default: as many)"
    )
    parser.add_argument(
        "--step-time",
        type=float,
        default=_DEFAULTS.step_time,
        metavar="S",
        help="sleep of a step (default: 0.01)",
    )
    parser.add_argument(
        "--capture-every", type=float, default=_DEFAULTS.capture_every, metavar="S", help="(default: 10)"
    )
    parser.add_argument(
        "--rate", type=float, default=_DEFAULTS.rate, metavar="N", help="requests/s (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="the lines as one JSON list")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep records, output and samples (seen.json) here"
    )
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
