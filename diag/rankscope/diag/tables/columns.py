"""Rows that come job by job, kept as the columns of a table. Pure.

A row is a tuple only until some thousand wait to be turned: half a million tuples, of ten thousand jobs,
would be as much memory again, and three times the work to turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from rankscope.diag.tables.declare import Row, Table

_AT_ONCE: Final = 4096


class Columns:
    """The values of a table, column by column."""

    def __init__(self, table: Table) -> None:
        self._columns: list[list[object]] = [[] for _ in table.columns]
        self._rows: list[Row] = []

    def add(self, rows: Iterable[Row], *first: object) -> None:
        """More rows.

        Args:
            rows: values in the order of the columns, without those in ``first``.
            first: values of the leftmost columns, the same in all these rows.
        """
        rest = iter(rows)
        while some := list(islice(rest, _AT_ONCE - len(self._rows))):
            self._rows += some
            for column, value in zip(self._columns, first, strict=False):
                column.extend([value] * len(some))
            if len(self._rows) >= _AT_ONCE:
                self._turn()

    def values(self) -> list[list[object]]:
        """All values, a list a column."""
        self._turn()
        return self._columns

    def _turn(self) -> None:
        if self._rows:
            columns = self._columns[-len(self._rows[0]) :]
            for column, values in zip(columns, zip(*self._rows, strict=True), strict=True):
                column.extend(values)
            self._rows.clear()
