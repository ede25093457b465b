"""Which files of a job's folder belong in a bundle, and how each is to be read. Links are not followed.

Only what is known goes in: a file that something else has put there may hold anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Form = Literal["json", "zst", "lines", "text", "log", "error"]
_KNOWN: Final[tuple[tuple[re.Pattern[str], Form], ...]] = (
    (re.compile(r"job\.json"), "json"),
    (re.compile(r"catalogue\.toml"), "text"),
    (re.compile(r"nodes/[^/]+/agent\.json"), "json"),
    (re.compile(r"nodes/[^/]+/events\.jsonl"), "lines"),
    (re.compile(r"nodes/[^/]+/logs/[^/]+/[^/]+/error\.json"), "error"),
    (re.compile(r"nodes/[^/]+/logs/[^/]+/[^/]+/std(?:out|err)\.log"), "log"),
    (re.compile(r"incidents/[^/]+/(?:diagnosis|decision)\.json"), "json"),
    (re.compile(r"incidents/[^/]+/snapshot-[ab]\.json\.zst"), "zst"),
)
_SILENT: Final = re.compile(r"(?:.*/)?\.lock|(?:.*/)?\.[^/]+\.\d+")
"""What no one misses: locks, and what a write was interrupted at."""


@dataclass(frozen=True, slots=True)
class Found:
    """One file.

    Attributes:
        name: below the job's folder.
        form: how it is read, ``None`` when it does not belong in a bundle; then reason says why.
    """

    name: str
    path: Path
    form: Form | None
    reason: str = ""


def files_of(folder: Path, *, logs: bool) -> list[Found]:
    """All files of a job's folder, by name.

    Args:
        folder: the job's.
        logs: whether the workers' logs are wanted.
    """
    return sorted(
        (found for name, entry in _walk(folder, "") if (found := _found(name, entry, logs=logs)) is not None),
        key=lambda found: found.name,
    )


def _walk(folder: Path, before: str) -> Iterator[tuple[str, os.DirEntry[str] | OSError]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        yield before.removesuffix("/") or ".", error
        return
    for entry in listed:
        name = before + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/")
        else:
            yield name, entry


def _found(name: str, entry: os.DirEntry[str] | OSError, *, logs: bool) -> Found | None:
    if isinstance(entry, OSError):
        return Found(name, Path(), None, f"cannot be read: {entry.strerror or entry}")
    path = Path(entry.path)
    if name == "token":
        return Found(name, path, None, "it is a key: never in a bundle")
    if not entry.is_file(follow_symlinks=False):
        return Found(name, path, None, "a link, or no file")
    form: Form | None = next((form for pattern, form in _KNOWN if pattern.fullmatch(name)), None)
    if form in ("log", "error") and not logs:
        return Found(name, path, None, "--no-logs")
    if form is None:
        if _SILENT.fullmatch(name):
            return None
        is_report = name.endswith(".html") and name.startswith("incidents/")
        reason = "diag report makes it again" if is_report else "no file of Rankscope's"
        return Found(name, path, None, reason)
    return Found(name, path, form)
