"""Files that a verb writes where the user says: checked before the work, whole or not there at all.

``-`` is standard output. A link is followed: the file that it leads to is replaced, the link stays.
Nothing is written among the stored jobs. It must not know what is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.store.outside_jobs import check_outside_jobs
from rankscope.diag.store.whole_file import whole_file
from rankscope.diag.streams import answer

STANDARD_OUTPUT: Final = "-"


def check_outputs(wanted: Mapping[str, str | None], *, json: bool = False) -> None:
    """Find out before anything is done whether all of it can be written.

    Args:
        wanted: file name by flag, ``None`` for a flag that was not given.
        json: whether standard output is taken by ``--json``.

    Raises:
        UsageError: two flags want one place, or one has no place to write to, or one among the stored jobs.
    """
    places: dict[str, str] = {"--json": STANDARD_OUTPUT} if json else {}
    for flag, name in wanted.items():
        if name is None:
            continue
        place = name if name == STANDARD_OUTPUT else os.path.realpath(name)
        if place in places.values():
            other = next(flag for flag, taken in places.items() if taken == place)
            raise UsageError(f"{other} and {flag} {name}: one place cannot take both")
        places[flag] = place
        if name != STANDARD_OUTPUT:
            _check_file(flag, Path(name))


def is_special(path: str | Path) -> bool:
    """Whether it is a device or a pipe: written directly, and its name says nothing."""
    place = Path(path)
    try:
        return place.exists() and not (place.is_file() or place.is_dir())
    except (OSError, ValueError):  # no path at all
        return False


def free_name(name: str) -> str:
    """A name that nobody asked for, with ``-2`` (or more) in it when there is such a file already."""
    path, number = Path(name), 1
    end = "".join(path.suffixes[-2:]) if path.suffixes[-2:-1] == [".tar"] else path.suffix
    stem = path.name.removesuffix(end)
    while os.path.lexists(path):
        number += 1
        path = path.with_name(f"{stem}-{number}{end}")
    return str(path)


def _check_file(flag: str, path: Path) -> None:
    try:
        if path.is_dir():
            raise UsageError(f"{flag} {path}: that is a folder; name a file in it")
        if not path.parent.is_dir():
            raise UsageError(f"{flag} {path}: there is no folder {path.parent}")
        taken = path if is_special(path) else path.parent
        check_outside_jobs(path, flag=flag)
    except (OSError, ValueError) as error:  # too long for a path, or no path at all
        raise UsageError(f"{flag} {path}: no file can be called that ({error})") from None
    if not os.access(taken, os.W_OK):
        raise UsageError(f"{flag} {path}: {taken} cannot be written by you")


def write_output(name: str, data: bytes) -> None:
    """Write a file beside its place and put it there when it is whole; what is no file gets it directly.

    Raises:
        StoreError: it cannot be written; nothing of it stays.
    """
    if name == STANDARD_OUTPUT:
        answer(lambda out: _to_stream(out.buffer.fileno(), data))
        return
    path = Path(name)
    try:
        if is_special(path):
            path.write_bytes(data)
        else:
            with whole_file(path.resolve()) as beside:
                beside.write_bytes(data)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def _to_stream(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
