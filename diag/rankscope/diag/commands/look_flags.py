"""The flags of every verb that looks at running processes."""

from __future__ import annotations

import argparse
from typing import Final

from rankscope.diag.live import INTERVAL

_LONGEST: Final = 86400.0
"""Seconds; nobody waits longer than a day for a look."""


def add_look_flags(parser: argparse.ArgumentParser) -> None:
    """What is asked of a process, and how long it may take."""
    parser.add_argument(
        "--native", action="store_true", help="C++ frames too (each rank stands still for 0.02-0.4 s)"
    )
    parser.add_argument("--locals", action="store_true", help="local variables too")
    parser.add_argument(
        "--timeout", type=_seconds, default=20.0, metavar="S", help="seconds one look may take (default 20)"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=INTERVAL,
        metavar="S",
        help=f"seconds between the two looks (default {INTERVAL:g})",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < _LONGEST:
        raise ValueError
    return value
