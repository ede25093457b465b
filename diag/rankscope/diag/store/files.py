"""How a file of the job folder is written and read: whole, atomic, decoded at the edge."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import zstandard

from rankscope.diag.errors import StoreError
from rankscope.diag.store.whole_file import whole_file

T = TypeVar("T")
_LEAST_READ: Final = 1 << 16
MOST_JSON_BYTES: Final = 1 << 30
"""Of one JSON file, unpacked: a hundred times what 16,384 ranks take."""


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` beside ``path``, flush it to disk and rename it into place, its name on disk as well.

    Raises:
        OSError: the folder cannot be written.
    """
    make_folders(path.parent)
    with whole_file(path) as beside:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    flush_entries(path.parent)


def make_folders(folder: Path) -> None:
    """Make ``folder`` and those above it, each with its entry on disk.

    Raises:
        OSError: one of them cannot be made.
    """
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_entries(folder.parent)


def flush_entries(folder: Path) -> None:
    """Have the names in ``folder`` on disk: a file that was flushed is lost with its name.

    Some file systems (shares) cannot, and a folder may be closed to readers: the file itself is there.
    """
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_regular(path: Path, *, most: int | None = None) -> bytes:
    """The content of a file; one that is no regular file (a FIFO would be waited for) is refused at once.

    Args:
        path: of the file.
        most: bytes; a larger file is not read.

    Raises:
        OSError: it is not there, cannot be read, is too large, or is something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most is not None and found.st_size > most:
            raise OSError(errno.EFBIG, f"too large to be read ({found.st_size} bytes)", str(path))
        # A file object costs three times as much, and stores have 100,000 files.
        asked = found.st_size + 1 if found.st_size else _LEAST_READ
        data = os.read(fd, asked)
        if 0 < found.st_size <= len(data) < asked:  # nothing is behind it
            return data
        parts = [data]
        while part := os.read(fd, _LEAST_READ):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct as JSON: for a person's eyes, or compressed when the name ends in ``.zst``.

    Raises:
        OSError: the folder cannot be written.
    """
    data = msgspec.json.encode(value)
    if path.suffix == ".zst":  # without white space: it would be a third of what a reader goes through
        write_atomic(path, zstandard.compress(data))
    else:
        write_atomic(path, msgspec.json.format(data, indent=1))


def read_json(path: Path, kind: type[T]) -> T:
    """Read what ``write_json`` wrote.

    Raises:
        StoreError: the file is missing, torn or of another shape; the message says which.
    """
    try:
        data = read_regular(path, most=MOST_JSON_BYTES)
        if path.suffix == ".zst":
            data = _unpacked(data)
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, zstandard.ZstdError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: not readable as {kind.__name__}: {error}") from error


def _unpacked(data: bytes) -> bytes:
    size = zstandard.frame_content_size(data)
    if size > MOST_JSON_BYTES:  # believed by the decompressor, which allocates it first
        raise OSError(errno.EFBIG, f"too large to be read ({size} bytes unpacked)")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_JSON_BYTES if size < 0 else 0)
