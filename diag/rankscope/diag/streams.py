"""The standard streams of a command: what is said reaches its reader, or the exit status tells.

Any of them may be closed, broken, full, or of an encoding that has not all characters. It must not know what
is said.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final, TextIO, cast

from rankscope.diag.errors import StoreError

_STREAMS: Final = range(3)
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class _Reader:
    """Whether stdout was given up: its reader has gone, or a failure was told once."""

    has_gone = False


def fill_closed() -> None:
    """Put /dev/null where the caller closed a stream: the next file opened would take its place."""
    for fd in _STREAMS:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the encoding has not, and bytes of file names that are no text, are spelled out as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")


def json_line(value: object) -> str:
    r"""A value as one line of JSON, in ASCII: any encoding of stdout has that.

    A byte of a file name that is no text is spelled out (``\udcff``), as JSON must not have it.
    """
    text = json_bytes(value).decode()
    return (text if text.isascii() else _NOT_ASCII.sub(_escaped, text)) + "\n"


def json_bytes(value: object) -> bytes:
    """A value as JSON in UTF-8, likewise with what is no text spelled out."""
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_spelled_out(msgspec.to_builtins(value)))


def _spelled_out(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {_spelled_out(key): _spelled_out(one) for key, one in items}
    if isinstance(value, list | tuple):
        return [_spelled_out(one) for one in cast("Sequence[object]", value)]
    return value


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]


def answer(write: Callable[[TextIO], None]) -> None:
    """Let ``write`` write to stdout; a reader that has gone is no error.

    Raises:
        StoreError: it cannot be written (a full disk, a closed stream).
    """
    if sys.stdout is None:
        if _Reader.has_gone:
            return
        raise StoreError("the answer cannot be written: standard output is closed")
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon()
    except OSError as error:
        _abandon()
        raise StoreError(f"the answer cannot be written: {error.strerror or error}") from error


def tell(text: str) -> None:
    """Write lines to stderr, if that is possible; control characters, a job's name may have some, inert."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(_inert_lines(text))
            sys.stderr.flush()


def _inert_lines(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def _abandon() -> None:
    """Whatever is still to be written goes nowhere: Python would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)
    _Reader.has_gone = True
    sys.stdout = None  # as Python has it when there is none
