"""The copy of a program that a trial runs: under a drawn name, and with drawn names in it.

Names are replaced as whole identifiers, so that every line stays where it was: a line is found by its marker,
the comment ``# stuck here`` or ``# stuck here: NAME``, in the program or in the copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = "here"
"""The marker without a name."""
_MARKER: Final = re.compile(r"#\s*stuck here(?::\s*(?P<name>[\w ,]+))?")


def write_copy(program: Path, copy: Path, names: Mapping[str, str]) -> None:
    """Copy a program with other names.

    Raises:
        ValueError: a name is not in the program, or a new one is there already.
    """
    text = program.read_text()
    for old, new in names.items():
        if with_names(text, {old: new}) == text:
            raise ValueError(f"nothing is called {old} in {program.name}")
        if with_names(text, {new: old}) != text:
            raise ValueError(f"something is called {new} in {program.name} already")
    copy.write_text(with_names(text, names))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The text with other names: whole identifiers, in strings and comments too."""
    if not names:
        return text
    return re.sub(rf"\b(?:{'|'.join(map(re.escape, names))})\b", lambda found: names[found.group()], text)


def marked_lines(text: str) -> dict[str, tuple[int, ...]]:
    """The line numbers of each marker; a marker may stand on several lines, and a line have several names."""
    lines: dict[str, tuple[int, ...]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _MARKER.finditer(line):
            for name in (found["name"] or HERE).split(","):
                lines[name.strip()] = (*lines.get(name.strip(), ()), number)
    return lines
