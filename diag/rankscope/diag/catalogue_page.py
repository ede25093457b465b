"""Writes the reference page of the packaged catalogue: ``python -m rankscope.diag.catalogue_page > FILE``.

The page is the catalogue in tables, each entry with the comment that says where its frames were seen. ``make
docs`` writes it anew; a test says when the one in ``docs/`` is stale. It must not know what a label leads to.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rankscope.diag.classify.catalogue import packaged_text
from rankscope.diag.classify.catalogue_text import LABELS, TABLES, headings, read_catalogue_text

LABEL_MEANINGS: Final[Mapping[str, str]] = {
    "collective": "waits for other ranks in a collective",
    "p2p": "waits for another rank in a send or receive",
    "startup": "waits in rendezvous, or while a process group is set up",
    "store_wait": "waits for a key of the store",
    "backward": "in backward, which may wait for other ranks (DDP) or compute",
    "gpu_wait": "waits for its GPU, which may wait for other ranks or compute",
    "data_loading": "loads data in this process",
    "loader_wait": "waits for a worker of the data loader",
    "checkpoint": "saves or loads a checkpoint",
    "compile": "compiles, or waits for who compiles",
    "exit": "is at its exit, and waits for threads or children",
    "lock": "waits for a lock, an event or a thread",
    "child_process": "waits for a child process",
    "storage": "reads or writes a file",
    "network": "waits for a socket",
    "pause": "sleeps between two turns",
    "no_task": "waits for its next task, where nothing runs below it",
}
_HEAD: Final = """\
# Catalogue

What Rankscope makes of the frames on a stack. A stack is read from its leaf outwards: library frames that no
pattern knows are passed over until one means something, or is the user's own code. Entries are asked in this
order, the first that matches counts. To add yours: [a catalogue of your own](../how-to/own-catalogue.md).

`make docs` writes this page from `diag/rankscope/diag/classify/frames.toml`: change that file, not this one.
*Measured* is on torch 2.13 with gloo on CPU, Python 3.11; *public stacks* are dumps in bug reports; *known
names* were met in no stack yet.
"""
_INTROS: Final[Mapping[str, str]] = {
    "frames": """## Frames

Functions by their bare name (`Loader.fetch` is `fetch`), files by the end of their path; `*` stands for
anything. C++ frames by their symbol.
""",
    "hints": """## Words of users' names

In the names of the innermost functions of the user's own: they give a kind, the verdict never rests on them.
""",
    "source": """## Text of the user's line

A call into C leaves no Python frame: the line that made it tells what it waits for. Where the kernel's wait
channel is known it has to match as well.
""",
    "wchan": """## Wait channels

Functions of the kernel that a main thread sleeps in (`/proc/PID/wchan`).
""",
    "calls": """## Calls of the C library

Where a C++ stack ends in one of these and nothing else says more.
""",
    "threads": """## Auxiliary threads

They serve others and never decide where a rank stands: by their name, or by a frame anywhere on the stack.
""",
    "decorators": """## Decorators

Frames that only stand around a call: where the ways of ranks part is never told by them.
""",
    "sleep": """## Asleep

Calls that sleep: of the C library, and of a user's line.
""",
    "library": """## Not the user's own code

Paths of files.
""",
    "user": """## The user's own code

Paths of files, whatever the table above says.
""",
    "exit": """## Ends that follow another rank's

Words of the message with which a rank ended.
""",
}
_CODE: Final = re.compile(r"(`[^`]*`)")


def render_page(text: str) -> str:
    """The page of a catalogue's text, Markdown."""
    parts = [_HEAD, _labels()]
    places = headings(text)
    document = read_catalogue_text(text).document
    for table in TABLES:
        entries: list[msgspec.Struct] = getattr(document, table)
        if not entries:
            continue
        comments = [one.comment for one in places if one.table == table]
        parts += [_INTROS[table], _table(entries, comments)]
    return "\n".join(parts)


def _labels() -> str:
    rows = [f"| `{label}` | {LABEL_MEANINGS[label]} |" for label in LABELS]
    return "\n".join(["## Labels\n", "| label | its rank |", "|---|---|", *rows]) + "\n"


def _table(entries: Iterable[msgspec.Struct], comments: Iterable[str]) -> str:
    rows: list[str] = []
    labelled = False
    for entry, comment in zip(entries, comments, strict=True):
        values = msgspec.structs.asdict(entry)
        label = values.pop("label", "")
        labelled = labelled or bool(label)
        cells = [f"`{label}`"] if label else []
        cells += [_cell(values), _plain(comment)]
        rows.append(f"| {' | '.join(cells)} |")
    columns = ["label", "pattern", "seen"] if labelled else ["pattern", "seen"]
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*head, *rows]) + "\n"


def _cell(values: Mapping[str, object]) -> str:
    """The keys of an entry that say something, one after the other."""
    parts: list[str] = []
    for key, value in values.items():
        if isinstance(value, list):
            if value:
                parts.append(f"{key}: " + " ".join(_code(str(one)) for one in value))
        elif isinstance(value, bool):
            if value:
                parts.append(key)
        elif value != "python":
            parts.append(f"{key}: {_code(str(value))}")
    return "<br>".join(parts)


def _code(text: str) -> str:
    """Code in a cell of a table: a bar would end the cell, a backtick the code."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


def _plain(text: str) -> str:
    """A comment in a cell: what stands in backticks stays as it is, but for the bar."""
    parts = _CODE.split(text.replace("|", "\\|"))
    escaped = (part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2])
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(escaped, parts[1::2], fillvalue="")))


if __name__ == "__main__":
    sys.stdout.write(render_page(packaged_text()))
