"""What a table is: its columns, each with a type, a unit and a meaning, declared once.

The frames, the Parquet files and the reference page are all made of these declarations. It must not know
pandas: importing it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class Kind(Enum):
    """What a column holds; the value is its pandas dtype, as the page writes it."""

    TEXT = "string"
    INT = "int64"
    MAYBE_INT = "Int64"
    NUMBER = "float64"
    BOOL = "bool"
    MAYBE_BOOL = "boolean"
    TIME = "datetime64[ns, UTC]"
    INTS = "object (tuple of int)"
    TEXTS = "object (tuple of str)"

    @property
    def dtype(self) -> str:
        """The pandas dtype."""
        return self.value.partition(" (")[0]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        unit: ``s``, ``ns``, ...; ``""`` for a column that has none.
        meaning: one line for the page.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: of the method that gives it.
        row: what one row is, for the page.
        made_of: which stored records it is made of, for the page.
        columns: in order.
        dated: column whose day a row is filed under in a dataset; ``""`` for that of the job's begin.
    """

    name: str
    row: str
    made_of: str
    columns: tuple[Column, ...]
    dated: str = "time"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

    def with_first(self, column: Column) -> Table:
        """The same table with one more column before all others."""
        return replace(self, columns=(column, *self.columns))


Row = tuple[object, ...]
"""Values in the order of a table's columns. A time is a text (ISO 8601) or a whole number of ns, of one
sort in all rows of a column, and ``None`` where there is none."""
Rows = Iterable[Row]


def text(name: str, meaning: str) -> Column:
    """A text; ``<NA>`` where there is none."""
    return Column(name, Kind.TEXT, meaning)


def integer(name: str, meaning: str, unit: str = "") -> Column:
    """A whole number that is always there."""
    return Column(name, Kind.INT, meaning, unit)


def maybe_integer(name: str, meaning: str, unit: str = "") -> Column:
    """A whole number; ``<NA>`` where there is none."""
    return Column(name, Kind.MAYBE_INT, meaning, unit)


def seconds(name: str, meaning: str) -> Column:
    """A duration; NaN where there is none."""
    return Column(name, Kind.NUMBER, meaning, "s")


def number(name: str, meaning: str, unit: str = "") -> Column:
    """A number; NaN where there is none."""
    return Column(name, Kind.NUMBER, meaning, unit)


def truth(name: str, meaning: str) -> Column:
    """True or false."""
    return Column(name, Kind.BOOL, meaning)


def maybe_truth(name: str, meaning: str) -> Column:
    """True, false, or ``<NA>`` where nobody can tell."""
    return Column(name, Kind.MAYBE_BOOL, meaning)


def moment(name: str, meaning: str) -> Column:
    """A time of a wall clock in UTC; ``NaT`` where there is none."""
    return Column(name, Kind.TIME, meaning)


def integers(name: str, meaning: str) -> Column:
    """Whole numbers, empty for none."""
    return Column(name, Kind.INTS, meaning)


def texts(name: str, meaning: str) -> Column:
    """Texts, empty for none."""
    return Column(name, Kind.TEXTS, meaning)
