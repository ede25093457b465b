"""The catalogue of one look: the packaged one, with what users keep beside their jobs on top.

A file is found in the store's root, and in the job's folder; the command line may name another. A mistake in
a found file costs the entry it is in and one line that says so; in a file that was named it is an error. It
reads files, and leaves to ``classify`` what they mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.errors import UsageError
from rankscope.diag.store.job import home

_FILE_NAME: Final = "catalogue.toml"
_LARGEST: Final = 1 << 20
"""Bytes; the packaged one has 30,000."""


def found_catalogue(job_dir: str | Path | None = None, *, say: Callable[[str], None]) -> Catalogue:
    """The packaged catalogue with the files that are found; never raises.

    Args:
        job_dir: the job's folder, ``None`` without one.
        say: is given a line for each mistake.
    """
    catalogue = Catalogue.load()
    folders = (home(), Path(job_dir)) if job_dir else (home(),)
    for path in (folder / _FILE_NAME for folder in folders):
        if not _is_there(path):
            continue
        try:
            read, mistakes = Catalogue.read(_text(path))
        except UsageError as error:
            say(str(error))
            continue
        for mistake in mistakes:
            say(f"{mistake.told(str(path))} (left out)")
        catalogue = catalogue.merge(read)
    return catalogue


def named_catalogue(path: Path) -> Catalogue:
    """The catalogue in a file that the user named.

    Raises:
        UsageError: it cannot be read, or has mistakes: a line for each.
    """
    return Catalogue.parse(_text(path), name=str(path))


def user_code_paths(paths: Iterable[str]) -> list[str]:
    """``--user-code`` as stacks may spell it: as given, and whole.

    A folder that an installation links to is known by the name that Python imported it under and by its own.
    """
    spelled: dict[str, None] = {}
    for path in paths:
        expanded = os.path.expanduser(path)  # noqa: PTH111 - as text: a dump's paths need not exist here
        for one in (expanded, os.path.abspath(expanded), os.path.realpath(expanded)):  # noqa: PTH100
            spelled[one] = None
    return list(spelled)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    """The text of a catalogue.

    Raises:
        UsageError: it cannot be read, is too large, or is no UTF-8.
    """
    try:
        if not path.is_file():
            why = "is no file" if path.exists() else "does not exist"
            raise UsageError(f"{path}: {why}; name a TOML file with frame patterns")
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path}: cannot be read ({why}); name a TOML file with frame patterns") from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path}: larger than 1 MiB, which no catalogue is; name a TOML file of patterns")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: no UTF-8; save the file as UTF-8") from error
