"""Code blocks of the documentation, and the commands in them. It must not know what becomes of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(
    r"^(?P<run><!-- run -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_VARIABLE: Final = re.compile(r"^[A-Z_]+=")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        page: path below the repository.
        line: where it begins.
        language: ``""`` when it names none.
        is_run: whether the page says (``<!-- run -->``) that what it shows is what comes of it.
    """

    page: str
    line: int
    language: str
    text: str
    is_run: bool

    @property
    def name(self) -> str:
        """For a person."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block.

    Attributes:
        words: as a shell splits it; variables before it are in ``variables``.
        shown: the lines below it, up to the next command.
    """

    words: tuple[str, ...]
    variables: dict[str, str]
    shown: tuple[str, ...]


def blocks() -> list[Block]:
    """All blocks of the README and of ``docs/``."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [block for page in pages for block in _of(page)]


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text[: found.start("language")].count("\n") + 1
        name = str(page.relative_to(ROOT))
        yield Block(name, line, found["language"], found["text"], is_run=found["run"] is not None)


def commands(block: Block) -> list[Command]:
    """The commands of a console block: lines after ``$``, with those that a backslash continues."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("$ "):
            found.append((line.lstrip()[2:], []))
        elif found:
            found[-1][1].append(line)
    return [_command(line, shown) for line, shown in found]


def _command(line: str, shown: list[str]) -> Command:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    variables: dict[str, str] = {}
    while words and _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return Command(tuple(words), variables, tuple(shown))


def is_shown(actual: str, shown: tuple[str, ...]) -> bool:
    """Whether an output is what a page shows; a line ``...`` stands for any lines."""
    lines = [line.rstrip() for line in actual.strip("\n").splitlines()]
    wanted = [line.rstrip() for line in "\n".join(shown).strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "\n".join([*lines, ""])) is not None
