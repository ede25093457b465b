"""The tables of a history as CSV: one a call, a heading line first. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rankscope.diag.history.model import Fault, JobHistory, Moment, SettingInForce, Spent
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.launches import Cycle, RestartRecord

_Row = Mapping[str, object]


def csv_text(history: JobHistory, table: str) -> str:
    """One of ``TABLES`` as CSV (RFC 4180, but lines end as elsewhere in Unix).

    Lists are joined with ``;``, sets of ranks folded (``0-3,6``), what is not known is empty. A text that a
    spreadsheet would take for a formula has a ``'`` before it.
    """
    columns, rows = TABLES[table]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows(history):
        writer.writerow({name: _plain(row.get(name)) for name in columns})
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ";".join(map(str, value))
    if isinstance(value, str):
        text = "".join(char if char.isprintable() else " " for char in value)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not _is_number(text) else text
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fields(kind: type[msgspec.Struct], *, without: Iterable[str] = ()) -> tuple[str, ...]:
    left_out = {"schema", *without}
    return tuple(name for name in kind.__struct_fields__ if name not in left_out)


def _as_rows(values: Sequence[msgspec.Struct]) -> Iterable[_Row]:
    return map(msgspec.structs.asdict, values)


def _restarts(history: JobHistory) -> Iterable[_Row]:
    for restart in history.restarts:
        for record in restart.records or (restart.record,):
            yield {
                **msgspec.structs.asdict(record),
                "faults": fold_ranks(record.faults),
                "nodes": restart.nodes,
            }


def _cycles(history: JobHistory) -> Iterable[_Row]:
    for cycle in history.cycles:
        yield {**msgspec.structs.asdict(cycle), "ranks": fold_ranks(cycle.ranks)}


def _faults(history: JobHistory) -> Iterable[_Row]:
    behind = [(fault, restart.record.restarts) for restart in history.restarts for fault in restart.faults]
    for fault, restarts in (*behind, *((fault, None) for fault in history.faults)):
        yield {**msgspec.structs.asdict(fault), "restarts": restarts}


TABLES: Final[Mapping[str, tuple[Sequence[str], Callable[[JobHistory], Iterable[_Row]]]]] = {
    "restarts": ((*_fields(RestartRecord), "nodes"), _restarts),
    "cycles": (_fields(Cycle), _cycles),
    "spent": (_fields(Spent), lambda history: _as_rows(history.spent)),
    "faults": ((*_fields(Fault), "restarts"), _faults),
    "moments": (_fields(Moment), lambda history: _as_rows(history.moments)),
    "settings": (_fields(SettingInForce), lambda history: _as_rows(history.settings)),
}
"""Name of each table, its columns, and its rows."""
