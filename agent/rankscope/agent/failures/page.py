"""Writes the tables of ``docs/reference/failures.md``: ``python -m rankscope.agent.failures.page FILE``.

Only what stands between the two marks is written anew, from ``retryable.toml`` with its comments. A test says
when the page is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rankscope.agent.failures.retryable import Table, packaged_table, packaged_text

BEGIN: Final = "<!-- written by python -m rankscope.agent.failures.page -->"
END: Final = "<!-- end of what is written -->"
_HEADING: Final = re.compile(r"^\[\[(message|never|exit_code)\]\]  # (.*)$")
_FURTHER: Final = re.compile(r"^ {6,}# (.*)$")


def main(arguments: list[str]) -> int:
    """Write the tables into the page given."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m rankscope.agent.failures.page FILE\n")
        return 2
    path = Path(arguments[0])
    path.write_text(with_tables(path.read_text("utf-8")), "utf-8")
    return 0


def with_tables(page: str) -> str:
    """The page with fresh tables.

    Raises:
        ValueError: the marks are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the tables: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{tables(packaged_table(), packaged_text())}\n{END}{after}"


def tables(table: Table, text: str) -> str:
    """The three tables.

    Args:
        table: what is in the file.
        text: the file, for its comments.
    """
    sources = list(_comments(text))
    told = {
        kind: iter([what for one, what in sources if one == kind])
        for kind in ("message", "never", "exit_code")
    }
    parts = ["### Retried: words", "", "| fault | any of these texts | from |", "|---|---|---|"]
    for message in table.message:
        outside = " (also of a worker killed with SIGKILL)" if message.is_from_outside else ""
        parts.append(_row(message.what + outside, _codes(message.texts), next(told["message"])))
    parts += [
        "",
        "### Never retried: words and types",
        "",
        "| fault | types | texts | from |",
        "|---|---|---|---|",
    ]
    parts += [
        _row(never.what, _codes(never.types), _codes(never.texts), next(told["never"]))
        for never in table.never
    ]
    parts += ["", "### Exit codes", "", "| codes | retried | meaning | why |", "|---|---|---|---|"]
    parts += [
        _row(_codes(entry.codes), "yes" if entry.retry else "no", entry.what, next(told["exit_code"]))
        for entry in table.exit_code
    ]
    return "\n".join(parts) + "\n"


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """Kind and comment of each entry, in the order of the file.

    Raises:
        ValueError: an entry has no comment.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("[["):
            continue
        found = _HEADING.match(line)
        if found is None:
            raise ValueError(f"line {number + 1}: an entry without a comment beside its heading")
        words = [found[2]]
        for further in lines[number + 1 :]:
            more = _FURTHER.match(further)
            if more is None:
                break
            words.append(more[1])
        yield found[1], " ".join(words)


def _codes(values: tuple[str, ...] | tuple[int, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
