"""Reads torch's error file: the exception's text, its stack, and when it was raised.

The formats of torch 1.9 to 2.13 (``elastic/multiprocessing/errors/error_handler.py``): ``message`` is a text,
or holds ``message`` and ``extraInfo`` with ``py_callstack`` and ``timestamp`` in whole seconds. The file is
written when the exception is raised, so its own time of change has the fraction, where the two agree.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final, cast

import msgspec

_MOST_BYTES: Final = 4 * 1024 * 1024
_AGREES: Final = 2.0
"""Seconds that the file's change may come after the second that stands in it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an error file says.

    Attributes:
        message: the whole text.
        stack: the traceback as text, ``""`` for none.
        at: when it was raised, ``None`` when that does not stand there.
        uncertainty: seconds by which that may lie after ``at``.
    """

    message: str
    stack: str
    at: float | None
    uncertainty: float


def read_error_file(path: str) -> Recorded | None:
    """Read an error file; ``None`` when there is none that says anything. Never blocks, never raises."""
    if not path:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        data = os.read(fd, _MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    return parse_error_file(data, changed=found.st_mtime)


def parse_error_file(data: bytes, *, changed: float | None = None) -> Recorded | None:
    """The same from the file's bytes; ``changed`` is when it was last written, in unix seconds."""
    try:
        content = msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    message, info = content.get("message"), cast("object", content)
    if isinstance(message, dict):
        inner = cast("dict[str, object]", message)
        message, info = inner.get("message"), inner.get("extraInfo")
    told = cast("dict[str, object]", info) if isinstance(info, dict) else {}
    text = message if isinstance(message, str) else ""
    stack = told.get("py_callstack")
    at = _seconds(told.get("timestamp"))
    uncertainty = 1.0
    if at is not None and changed is not None and 0 <= changed - at < _AGREES:
        at, uncertainty = changed, 0.0
    if not text.strip():
        return None
    return Recorded(text, stack if isinstance(stack, str) else "", at, uncertainty if at is not None else 0.0)


def _seconds(value: object) -> float | None:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < 1e11 else None  # noqa: PLR2004 - the year 5138
