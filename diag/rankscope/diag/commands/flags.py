"""The command line of a verb: one kind of error, and the flags that several verbs have."""

from __future__ import annotations

import argparse
from typing import Final, NoReturn

from rankscope.diag.errors import UsageError
from rankscope.diag.look_times import INTERVAL, TIMEOUT

_LONGEST: Final = 86400.0
"""Seconds; nobody waits longer than a day for a look."""


class VerbParser(argparse.ArgumentParser):
    """Ends with a ``UsageError`` that names the verb's help, instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise UsageError(f"{message} ({self.prog} --help)")


def seconds(text: str) -> float:
    """A time as a flag takes it, more than 0 and at most a day.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds expected, more than 0 and at most {_LONGEST:g}")
    return value


def named(text: str) -> str:
    """A path, pattern or name: anything but nothing, which a shell gives for a variable that is not set.

    Raises:
        argparse.ArgumentTypeError: it is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("a name expected, and this is empty")
    return text


def add_pid_flag(parser: argparse.ArgumentParser) -> None:
    """``--pid``, of the verbs that look at running processes."""
    parser.add_argument(
        "--pid",
        action="append",
        default=[],
        metavar="PID",
        help="training processes, or their launcher: 12,13",
    )


def add_look_flags(parser: argparse.ArgumentParser) -> None:
    """What is asked of a process, and how long it may take."""
    parser.add_argument(
        "--native", action="store_true", help="C++ frames too (each rank stands still for 0.02-0.4 s)"
    )
    parser.add_argument("--locals", action="store_true", help="local variables too")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT,
        metavar="S",
        help=f"seconds one look may take (default {TIMEOUT:g})",
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL,
        metavar="S",
        help=f"seconds between the two looks (default {INTERVAL:g})",
    )
