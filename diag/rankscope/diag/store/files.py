"""How a file of the job folder is written and read: whole, atomic, decoded at the edge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from rankscope.diag.errors import StoreError

T = TypeVar("T")


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` beside ``path``, flush it to disk and rename it into place.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct as JSON, compressed when the name ends in ``.zst``.

    Raises:
        OSError: the folder cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    write_atomic(path, zstandard.compress(data) if path.suffix == ".zst" else data)


def read_json(path: Path, kind: type[T]) -> T:
    """Read what ``write_json`` wrote.

    Raises:
        StoreError: the file is missing, torn or of another shape; the message says which.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompress(data)
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, zstandard.ZstdError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: not readable as {kind.__name__}: {error}") from error
