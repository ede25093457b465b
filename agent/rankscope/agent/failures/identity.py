"""The normal form of an error's text: what differs from one run of the same error to the next is taken out.

Addresses, process and thread ids, times, durations, sizes, ranks, devices, hosts with ports, temporary paths,
uuids, steps, sequence numbers, what a logger puts before a line, colours and progress bars become a mark
without digits (``<n>``). Everything else stays, numbers included: ``[Errno 28]`` and ``expected 3 channels``
tell one error from another. Pure; takes any text, and its time is linear in it.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.agent.failures.marks import with_marks
from rankscope.diag.read.prefixes import Prefixes

LONGEST: Final = 500
"""Characters of a normal form."""
_LONGEST_INPUT: Final = 2_000
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_BAR: Final = re.compile(
    r"(?:[\w .,=()-]{0,60}: {0,3})?\d{1,3}%\|[^|\n]{0,200}\| {0,3}[\d.,kMGT?]{1,20}/[\d.,kMGT?]{1,20} {0,3}"
    r"\[[^\]\n]{0,200}\]?|\b\d{1,15}(?:it|ex|B|rows?)? \[\d\d:\d\d(?::\d\d)?, [^\]\n]{0,100}\]"
)
"""A progress bar as tqdm draws it, with a total and without."""
_GLOG: Final = re.compile(
    r"\[?[IWEFVD]\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})? {1,6}(?:\d{1,10} )?[\w./<>-]{1,200}:\d{1,6}\] ?"
)
"""What glog, and torch's loggers of both languages, put before a line."""
_NCCL: Final = re.compile(r"(?<![\w.-])[\w.-]{1,253}:\d{1,10}:\d{1,10} \[\d{1,4}\] ")
_LEVEL: Final = re.compile(
    r"^(?:\[?\b(?:ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG)\b\]?[ :|-]{1,3}(?:[\w.]{1,80}:\d{1,6} )?)"
)

_BLANKS: Final = re.compile(r"\s+")


def error_identity(text: str, *, place: str = "") -> str:
    """The normal form of an error's text: the same error has the same.

    Args:
        text: the line that a person would read; further lines are left out.
        place: function and file that it came from, without a line's number: used where the text says no more
            than a type (``AssertionError``), which may come from many places.

    Returns:
        At most ``LONGEST`` characters, one line; ``""`` for an empty text. Normal forms stay as they are.
    """
    normal = normal_text(bare_line(text))
    if place and _says_a_type_only(normal):
        normal = f"{normal.rstrip(':')} in {normal_text(place)}"
    return normal[:LONGEST].rstrip()


def bare_line(text: str) -> str:
    """The first line that says anything, without colours, bars and what a launcher or logger put there."""
    for raw in text[:_LONGEST_INPUT].splitlines():
        line = without_bars(_ESCAPES.sub("", raw))
        if line.strip():
            return _without_prefixes(line)
    return ""


def without_bars(line: str) -> str:
    """A line without the progress bars in it."""
    return _BAR.sub("", line) if "%|" in line or ", " in line else line


def normal_text(text: str) -> str:
    """``text`` with a mark for everything that differs from run to run."""
    return _BLANKS.sub(" ", with_marks(text)).strip()


def _without_prefixes(line: str) -> str:
    body = Prefixes().split(line.strip()).body.strip()
    body = _GLOG.sub("", body, count=1) if _GLOG.match(body) else body
    body = _NCCL.sub("", body, count=1) if _NCCL.match(body) else body
    return _LEVEL.sub("", body, count=1).strip() or line.strip()


def _says_a_type_only(text: str) -> bool:
    return bool(re.fullmatch(r"[\w.]{1,200}:?", text))
