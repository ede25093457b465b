"""How a file of the job folder is written and read: whole, atomic, decoded at the edge."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from rankscope.diag.errors import StoreError

T = TypeVar("T")


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` beside ``path``, flush it to disk and rename it into place, its name on disk as well.

    Raises:
        OSError: the folder cannot be written.
    """
    make_folders(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _flush_entries(path.parent)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def make_folders(folder: Path) -> None:
    """Make ``folder`` and those above it, each with its entry on disk.

    Raises:
        OSError: one of them cannot be made.
    """
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _flush_entries(folder.parent)


def _flush_entries(folder: Path) -> None:
    """Have the names in ``folder`` on disk: a file that was flushed is lost with its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some file systems (shares) cannot, and the file itself is there.
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


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
