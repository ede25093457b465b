"""Parts of a page that are made from the code: what stands between two comments of a Markdown file.

A page says where a part begins and ends, and nothing else of it; the rest of the page is written by hand. It
must not know what a part shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Maker = Callable[[], str]
_PART: Final = re.compile(
    r"^<!-- made from the code: (?P<name>[a-z-]+) -->\n.*?^<!-- end: (?P=name) -->$", re.MULTILINE | re.DOTALL
)


def part_names(text: str) -> list[str]:
    """The parts that a page asks for, in their order."""
    return [found["name"] for found in _PART.finditer(text)]


def with_parts(text: str, makers: Mapping[str, Maker]) -> str:
    """The page with every part made anew.

    Args:
        text: the page, Markdown.
        makers: what makes each part, by name.

    Raises:
        KeyError: the page asks for a part that nobody makes.
    """

    def made(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- made from the code: {name} -->\n{makers[name]().strip()}\n<!-- end: {name} -->"

    return _PART.sub(made, text)


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
