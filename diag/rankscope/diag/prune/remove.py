"""Remove the folder of a job: it is renamed aside first, so that nobody ever sees half of it.

The folder of jobs is held open and everything is named from there: a link put in the place of a folder
meanwhile leads nowhere. ``shutil.rmtree`` follows no link either.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rankscope.diag.errors import RankscopeError

ASIDE: Final = ".pruned-"
"""Beginning of the names of folders that are being removed; hidden, so no job is ever called so."""
_ASIDE_BYTES: Final = 6
_MOST_NAMES: Final = 100
_OURS: Final = re.compile(rf"{re.escape(ASIDE)}[0-9a-f]{{{2 * _ASIDE_BYTES}}}")


class NotRemovedError(RankscopeError):
    """A job's folder stays; the message says why."""


@contextmanager
def opened(jobs: Path) -> Generator[int]:
    """The folder of jobs, to remove from.

    Raises:
        OSError: it cannot be opened.
    """
    fd = os.open(jobs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def remove_job(jobs: int, name: str, *, may_go: Callable[[str], bool]) -> None:
    """Remove one folder.

    Args:
        jobs: the folder of jobs, opened.
        name: of the job's folder in it.
        may_go: is asked about the folder under its new name, whether it may still go: an agent may have
            been started in it meanwhile.

    Raises:
        NotRemovedError: it is no folder, is in use now, or may not be removed. Half of it may be gone then,
            under a hidden name; a later run removes the rest.
    """
    aside = f"{ASIDE}{secrets.token_hex(_ASIDE_BYTES)}"
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=jobs, follow_symlinks=False).st_mode):
            raise NotRemovedError("a link or a file, no folder")
        os.rename(name, aside, src_dir_fd=jobs, dst_dir_fd=jobs)
    except OSError as error:
        raise NotRemovedError(error.strerror or str(error)) from error
    if not may_go(aside):
        lies = _put_back(jobs, aside, name)
        where = "" if lies == name else f"; its name was taken again, its records lie in {lies}"
        raise NotRemovedError(f"an agent was started in it just now{where}")
    _remove(jobs, aside)


def remove_remains(jobs: int, *, may_go: Callable[[str], bool]) -> int:
    """Remove what earlier runs were interrupted at; nothing that anybody else has called nearly so.

    Args:
        jobs: the folder of jobs, opened.
        may_go: is asked about each by its name: another run may be about to put it back, or could not.

    Returns:
        How many were removed.
    """
    with os.scandir(jobs) as entries:
        names = [entry.name for entry in entries if _OURS.fullmatch(entry.name)]
    done = 0
    for name in filter(may_go, names):
        with contextlib.suppress(NotRemovedError):
            _remove(jobs, name)
            done += 1
    return done


def _put_back(jobs: int, aside: str, name: str) -> str:
    """Give a folder its name again, or one beside it as agents do: under the hidden one it would go some day.

    Returns:
        The name that it has.
    """
    for free in (name, *(f"{name}~{number}" for number in range(2, _MOST_NAMES))):
        with contextlib.suppress(OSError):
            try:
                os.stat(free, dir_fd=jobs, follow_symlinks=False)
            except FileNotFoundError:
                os.rename(aside, free, src_dir_fd=jobs, dst_dir_fd=jobs)
                return free
    return aside


def _remove(jobs: int, name: str) -> None:
    try:
        shutil.rmtree(name, dir_fd=jobs)
    except FileNotFoundError:
        return  # another run removes it too
    except OSError as error:
        raise NotRemovedError(f"{error.strerror or error}; some of it is left as {name}") from error
