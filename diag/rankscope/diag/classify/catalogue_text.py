"""The text of a catalogue: its tables and keys, what is wrong in it and where, and the comment of each entry.

A file that a person wrote may have several mistakes: each becomes one line that says what, where and what to
do, and what is right is still used. It only reads; what an entry matches is not its business.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

import msgspec

from rankscope.diag.classify.patterns import Label

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SCHEMA: Final = 1
LABELS: Final[tuple[str, ...]] = get_args(Label)
_HEADER: Final = re.compile(r"^\s*\[{1,2}\s*([A-Za-z_][\w-]*)\s*\]{1,2}\s*(?:#\s*(.*?)\s*)?$")
_COMMENT: Final = re.compile(r"^\s*#\s*(.*?)\s*$")
_TOML_LINE: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
_QUOTES: Final = re.compile(r"'''|\"\"\"")
_WORDS: Final[Mapping[str, str]] = {
    "array": "a list",
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
}
_EVERYTHING: Final = frozenset({"*", "**"})


class FrameEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[frames]]``."""

    label: Label
    functions: list[str]
    files: list[str] = []
    kind: Literal["python", "native"] = "python"


class HintEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[hints]]``."""

    label: Label
    functions: list[str] = []
    files: list[str] = []


class SourceEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[source]]``."""

    label: Label
    pattern: str
    wchan: list[str] = []
    needs_wchan: bool = False
    needs_sleep: bool = False


class WchanEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[wchan]]``."""

    label: Label
    names: list[str]


class CallEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[calls]]``."""

    label: Label
    functions: list[str]


class ThreadEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[threads]]``."""

    names: list[str] = []
    frames: list[str] = []


class DecoratorEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[decorators]]``."""

    frames: list[str]


class SleepEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[sleep]]``."""

    functions: list[str] = []
    lines: list[str] = []


class LibraryEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[library]]``."""

    paths: list[str]
    functions: list[str] = []
    first_line: bool = False
    plumbing: bool = False


class PathsEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[user]]``."""

    paths: list[str]


class ExitEntry(msgspec.Struct, forbid_unknown_fields=True):
    """``[[exit]]``."""

    consequences: list[str]


@dataclass(frozen=True)
class Document:
    """The entries of a catalogue that are right, in the order of the file."""

    frames: list[FrameEntry] = field(default_factory=list[FrameEntry])
    hints: list[HintEntry] = field(default_factory=list[HintEntry])
    source: list[SourceEntry] = field(default_factory=list[SourceEntry])
    wchan: list[WchanEntry] = field(default_factory=list[WchanEntry])
    calls: list[CallEntry] = field(default_factory=list[CallEntry])
    threads: list[ThreadEntry] = field(default_factory=list[ThreadEntry])
    decorators: list[DecoratorEntry] = field(default_factory=list[DecoratorEntry])
    sleep: list[SleepEntry] = field(default_factory=list[SleepEntry])
    library: list[LibraryEntry] = field(default_factory=list[LibraryEntry])
    user: list[PathsEntry] = field(default_factory=list[PathsEntry])
    exit: list[ExitEntry] = field(default_factory=list[ExitEntry])


TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "frames": FrameEntry,
    "hints": HintEntry,
    "source": SourceEntry,
    "wchan": WchanEntry,
    "calls": CallEntry,
    "threads": ThreadEntry,
    "decorators": DecoratorEntry,
    "sleep": SleepEntry,
    "library": LibraryEntry,
    "user": PathsEntry,
    "exit": ExitEntry,
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a catalogue.

    Attributes:
        line: number of the line, 0 when it cannot be told.
        what: what is wrong.
        remedy: what to do.
    """

    line: int
    what: str
    remedy: str

    def told(self, name: str) -> str:
        """One line for a person: where, what, what to do."""
        where = f"{name}:{self.line}" if self.line else name
        return f"{where}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Heading:
    """Where an entry begins, and its comment: beside its heading and in the lines right below."""

    table: str
    line: int
    comment: str
    last_line: int


@dataclass(frozen=True, slots=True)
class CatalogueText:
    """What a catalogue's text holds."""

    document: Document
    mistakes: tuple[Mistake, ...]


def read_catalogue_text(text: str) -> CatalogueText:
    """Read a catalogue; never raises on any text."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is another ValueError
        return CatalogueText(Document(), (_no_toml(str(error)),))
    document, reader = Document(), _Reader(text)
    for name, value in tables.items():
        if name == "schema":
            reader.check_schema(value)
        elif name not in TABLES:
            reader.unknown_table(name)
        else:
            into = cast("list[msgspec.Struct]", getattr(document, name))
            into.extend(reader.entries(name, value))
    return CatalogueText(document, tuple(sorted(reader.mistakes, key=lambda mistake: mistake.line)))


def headings(text: str) -> tuple[Heading, ...]:
    """All headings of tables with their comments, in the order of the file."""
    found: list[Heading] = []
    lines = text.splitlines()
    quoted = False
    starts: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines, start=1):
        header = None if quoted else _HEADER.match(line)
        if header is not None:
            starts.append((number, header[1], header[2] or ""))
        if len(_QUOTES.findall(line)) % 2:
            quoted = not quoted
    for at, (number, table, beside) in enumerate(starts):
        following = starts[at + 1][0] if at + 1 < len(starts) else len(lines) + 1
        comment = " ".join([beside, *_comments_from(lines, number)]).strip()
        found.append(Heading(table, number, comment, following - 1))
    return tuple(found)


def _comments_from(lines: Sequence[str], start: int) -> list[str]:
    below: list[str] = []
    for line in lines[start:]:
        comment = _COMMENT.match(line)
        if comment is None:
            break
        below.append(comment[1])
    return below


def _no_toml(message: str) -> Mistake:
    at = _TOML_LINE.search(message)
    what = message[: at.start()] if at else message
    column = f" (column {at[2]})" if at else ""
    return Mistake(int(at[1]) if at else 0, f"no TOML: {what[:1].lower()}{what[1:]}{column}", "mend the line")


class _Reader:
    """Turns tables into entries and keeps what is wrong with them."""

    def __init__(self, text: str) -> None:
        self.mistakes: list[Mistake] = []
        self._lines = text.splitlines()
        self._headings = headings(text)

    def check_schema(self, value: object) -> None:
        if value != _SCHEMA:
            what = f"schema {value!r} is not known"
            self._add(self._line_of("schema"), what, f"this version reads schema = {_SCHEMA}")

    def unknown_table(self, name: str) -> None:
        heading = next((one for one in self._headings if one.table == name), None)
        line = heading.line if heading else self._line_of(name)
        self._add(line, f"there is no table {name!r}", _choose(name, TABLES))

    def entries(self, table: str, value: object) -> Iterable[msgspec.Struct]:
        """The right entries of a table: ``[[frames]]``, or ``[user]`` for a single one."""
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        places = [one for one in self._headings if one.table == table]
        for at, one in enumerate(values):
            # Written inline, or with a heading this module does not understand: no line then.
            place = places[at] if len(places) == len(values) else None
            if not isinstance(one, dict):
                self._add(self._line_of(table), f"{table} is no table", f"begin an entry with [[{table}]]")
                continue
            entry = self._entry(table, cast("dict[str, object]", one), place)
            if entry is not None:
                yield entry

    def _entry(self, table: str, value: dict[str, object], place: Heading | None) -> msgspec.Struct | None:
        kind = TABLES[table]
        known = {one.name: one for one in msgspec.structs.fields(kind)}
        before = len(self.mistakes)
        for key in value:
            if key not in known:
                self._add(self._key(place, key), f"[[{table}]] has no key {key!r}", _choose(key, known))
        for key, one in known.items():
            if one.required and key not in value:
                line = place.line if place else 0
                self._add(line, f"[[{table}]] without {key}", f"add a line {key} = ...")
        if "label" in known and "label" in value and value["label"] not in LABELS:
            what = f"there is no label {value['label']!r}"
            self._add(self._key(place, "label"), what, _choose(str(value["label"]), LABELS))
        if len(self.mistakes) > before:
            return None
        try:
            entry = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at ")
            key = re.sub(r"^`?\$\.?|[\[`].*$", "", where)
            wanted = "a list of texts" if _is_list(kind, key) else "another value"
            self._add(self._key(place, key), f"[[{table}]] {key}: {_of_types(what)}", f"write {wanted}")
            return None
        return entry if self._checks(table, entry, place) else None

    def _checks(self, table: str, entry: msgspec.Struct, place: Heading | None) -> bool:
        """What the types cannot say: expressions that compile, and patterns that mean something."""
        before = len(self.mistakes)
        for key, text in _expressions(entry):
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError, FutureWarning) as error:
                what = f"{text!r} is no regular expression: {error}"
                self._add(self._key(place, key), what, "escape what is meant literally, as in \\( or \\.")
        line = place.line if place else 0
        if not any(msgspec.structs.asdict(entry)[key] for key in _matching(entry)):
            names = " or ".join(_matching(entry))
            self._add(line, f"[[{table}]] matches nothing", f"name what it is for in {names}")
        if isinstance(entry, FrameEntry) and not entry.files and _EVERYTHING.intersection(entry.functions):
            self._add(self._key(place, "functions"), "[[frames]] matches every frame", "name its files")
        return len(self.mistakes) == before

    def _key(self, place: Heading | None, key: str) -> int:
        """The line of a key of an entry, else of the entry."""
        if place is None:
            return 0
        return self._line_of(key, place.line, place.last_line) or place.line

    def _line_of(self, key: str, start: int = 0, end: int | None = None) -> int:
        spelled = re.compile(rf"^\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]")
        lines = self._lines[start:end]
        return next((at for at, line in enumerate(lines, start=start + 1) if spelled.match(line)), 0)

    def _add(self, line: int, what: str, remedy: str) -> None:
        self.mistakes.append(Mistake(line, what, remedy))


def _is_list(kind: type[msgspec.Struct], key: str) -> bool:
    return any(one.name == key and "list" in str(one.type) for one in msgspec.structs.fields(kind))


def _of_types(message: str) -> str:
    """A message about types in TOML's words."""
    for type_name, word in _WORDS.items():
        message = message.replace(f"`{type_name}`", word)
    return f"{message[:1].lower()}{message[1:]}"


def _expressions(entry: msgspec.Struct) -> list[tuple[str, str]]:
    if isinstance(entry, SourceEntry):
        return [("pattern", entry.pattern)]
    if isinstance(entry, SleepEntry):
        return [("lines", line) for line in entry.lines]
    return []


def _matching(entry: msgspec.Struct) -> tuple[str, ...]:
    """The keys of which one must hold something."""
    if isinstance(entry, FrameEntry | CallEntry):
        return ("functions",)
    if isinstance(entry, HintEntry):
        return ("functions", "files")
    if isinstance(entry, SourceEntry):
        return ("pattern",)
    if isinstance(entry, LibraryEntry):
        return ("paths",)
    return tuple(one.name for one in msgspec.structs.fields(entry))


def _choose(given: str, known: Iterable[str]) -> str:
    """What to write instead: the nearest name, or the list of all."""
    import difflib  # only where something is wrong

    names = list(known)
    near = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}"
