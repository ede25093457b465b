"""How one entry of the catalogue matches: globs on names, expressions on lines, compiled once.

It knows nothing of TOML and nothing of what a label leads to.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.merge.normalise import bare_function, portable_file
from rankscope.diag.model import Frame

Label = Literal[
    "collective",
    "p2p",
    "startup",
    "store_wait",
    "backward",
    "gpu_wait",
    "data_loading",
    "loader_wait",
    "checkpoint",
    "compile",
    "exit",
    "lock",
    "child_process",
    "storage",
    "network",
    "pause",
    "no_task",
]

_NEVER: Final = re.compile(r"(?!)")
_PACKAGES: Final = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True, slots=True)
class FramePattern:
    """A label and the frames that carry it."""

    label: Label
    kind: Literal["python", "native"]
    function: re.Pattern[str]
    file: re.Pattern[str] | None

    def matches(self, frame: Frame) -> bool:
        """Whether the frame carries the label."""
        if self.kind != frame.kind or not self.function.match(bare_function(frame.function)):
            return False
        return self.file is None or self.file.match(portable_file(frame.file)) is not None


@dataclass(frozen=True, slots=True)
class SourcePattern:
    """A label and the source text that carries it; ``wchan`` narrows it where it is known."""

    label: Label
    text: re.Pattern[str]
    wchan: re.Pattern[str] | None
    needs_wchan: bool
    needs_sleep: bool = False


@dataclass(frozen=True, slots=True)
class HintPattern:
    """A label and the words of users' names that suggest it."""

    label: Label
    function: re.Pattern[str]
    file: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A label and the functions of the kernel, or of the C library, that carry it."""

    label: Label
    name: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class CallerPattern:
    """Frames of some functions of a file that are not the user's own, though the file may be."""

    path: re.Pattern[str]
    function: re.Pattern[str]
    first_line: bool

    def matches(self, frame: Frame) -> bool:
        """Whether the frame only calls what stands above it."""
        if self.first_line and frame.line > 1:
            return False
        return bool(self.path.match(frame.file) and self.function.match(bare_function(frame.function)))


def first_label(patterns: Iterable[FramePattern], frame: Frame) -> Label | None:
    """The label of the first pattern that the frame matches."""
    return next((pattern.label for pattern in patterns if pattern.matches(frame)), None)


def spelled(text: str) -> FramePattern:
    """``function (file)`` as in ``[[threads]]``; the label is not used."""
    function, _, file = text.partition(" (")
    return FramePattern("lock", "python", globs([function]), files([file.rstrip(")")]) if file else None)


def files(names: Iterable[str]) -> re.Pattern[str] | None:
    """Files match whole or as the tail of a path; ``None`` for any file."""
    wanted = list(names)
    return globs([spelling for name in wanted for spelling in (name, f"*/{name}")]) if wanted else None


def globs(names: Iterable[str]) -> re.Pattern[str]:
    """Whole names, as the shell's ``*`` and ``?`` mean them; no name matches nothing."""
    wanted = list(names)
    return re.compile("|".join(fnmatch.translate(name) for name in wanted)) if wanted else _NEVER


def below(path: str) -> re.Pattern[str]:
    """The file or folder at ``path``, taken literally, and everything in it.

    Tools write the files of installed packages without the folder that they are installed in.
    """
    whole = path.rstrip("/") or "/"
    spellings = [whole]
    for packages in _PACKAGES:
        _, found, package = whole.rpartition(packages)
        if found and package:
            spellings.append(package)
    text = "|".join(re.escape(one) for one in spellings)
    return re.compile(f"(?s:(?:{text})(?:/.*)?)\\Z")
