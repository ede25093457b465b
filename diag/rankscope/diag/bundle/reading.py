"""A file of the job as text, and back: what can be decoded is redacted as records, the rest as plain text."""

from __future__ import annotations

import os
import stat
from typing import Final

import msgspec
import zstandard

from rankscope.diag.bundle.files import Found
from rankscope.diag.errors import StoreError
from rankscope.diag.redact.records import redacted
from rankscope.diag.redact.text import Redactor
from rankscope.diag.store.files import read_regular

TAIL_BYTES: Final = 64 << 10
"""Of a log: its end."""
_LEAST_TAIL: Final = 2 << 10
_ALL_LOGS: Final = 32 << 20
_MOST_BYTES: Final = 2 << 30
"""Of a snapshot when it is unpacked: 16,384 ranks take a tenth of it."""


def tail_bytes(logs: int) -> int:
    """How much of each of so many logs a bundle holds."""
    return max(_LEAST_TAIL, min(TAIL_BYTES, _ALL_LOGS // max(1, logs)))


def read_text(found: Found, *, tail: int) -> tuple[str, str]:
    """The text of a file, and a note when it is not the whole of it.

    Raises:
        StoreError: it cannot be read, and so cannot be redacted.
    """
    try:
        if found.form == "log":
            return _tail(found, tail)
        data = read_regular(found.path)
        if found.form == "zst":
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST_BYTES)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}") from error
    except zstandard.ZstdError as error:
        raise StoreError(f"cannot be unpacked, and so not redacted: {error}") from error
    return data.decode("utf-8", "replace"), ""


def redact_text(found: Found, text: str, redactor: Redactor) -> bytes:
    """What goes into the bundle."""
    match found.form:
        case "json" | "zst" | "error":
            said = redactor.of_output() if found.form == "error" else redactor
            data = _record(text, said, pretty=found.form != "zst")
        case "lines":
            data = b"\n".join(_line(line, redactor) for line in text.split("\n"))
        case _:
            data = redactor.log(text).encode("utf-8", "replace")
    return zstandard.compress(data, 10) if found.form == "zst" else data


def _record(text: str, redactor: Redactor, *, pretty: bool) -> bytes:
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return redactor.log(text).encode("utf-8", "replace")
    data = msgspec.json.encode(redacted(value, redactor))
    return msgspec.json.format(data, indent=1) if pretty else data


def _line(line: str, redactor: Redactor) -> bytes:
    try:
        return msgspec.json.encode(redacted(msgspec.json.decode(line), redactor)) if line else b""
    except msgspec.DecodeError:
        return redactor.log(line).encode("utf-8", "replace")


def _tail(found: Found, size: int) -> tuple[str, str]:
    """The end of a log, from the beginning of a line."""
    fd = os.open(found.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("no file")
        begin = max(0, status.st_size - size)
        data = os.pread(fd, size, begin)
    finally:
        os.close(fd)
    if not begin:
        return data.decode("utf-8", "replace"), ""
    # What is cut is dropped up to its line's end: half of a secret has no form to be known by.
    line_end = data.find(b"\n")
    data = data[line_end + 1 :] if line_end >= 0 else b""
    return data.decode("utf-8", "replace"), f"the last {len(data)} of {status.st_size} bytes"
