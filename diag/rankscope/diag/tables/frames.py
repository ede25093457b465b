"""Values to a pandas DataFrame with the dtypes that the table declares, also when there are none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pandas as pd

from rankscope.diag.tables.declare import Kind, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas.api.extensions import ExtensionArray

_Values = Sequence[object]
_LEAST: Final = -(2**63)
_NOT_A_TIME: Final = _LEAST
"""What numpy has for it."""
_MOST: Final = 2**63 - 1


def own_copy(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame that may be changed without changing this one."""
    return frame.copy(deep=not _COPIES_LATE)


_COPIES_LATE: Final = int(pd.__version__.partition(".")[0]) >= 3  # noqa: PLR2004 - a version
"""Whether pandas itself copies what two frames share when one of them is changed."""


def frame_of(table: Table, columns: Sequence[_Values]) -> pd.DataFrame:
    """A frame with the columns of a table.

    Args:
        table: what it is of.
        columns: the values of each column, in their order.
    """
    made = {
        column.name: _MAKERS[column.kind](values)
        for column, values in zip(table.columns, columns, strict=True)
    }
    return pd.DataFrame(made, columns=list(table.names), copy=False)


def _texts(values: _Values) -> ExtensionArray:
    found = cast("Sequence[str | None]", values)
    try:
        return _as_arrow(found) if _IN_ARROW else pd.array(found, dtype="string")
    except (UnicodeEncodeError, ValueError):  # a name that is no UTF-8
        return pd.array([_utf8(value) for value in values], dtype="string")


_IN_ARROW: Final = pd.StringDtype().storage == "pyarrow"
"""Whether pandas keeps texts in Arrow's form: it does where pyarrow is installed, from version 3 on."""


def _as_arrow(values: Sequence[str | None]) -> ExtensionArray:
    """The same array, three times as quick as pandas makes it of a list."""
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

    made: ExtensionArray = pd.array(pa.array(values, pa.large_string()), dtype="string")
    return made


def _utf8(value: object) -> str | None:
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode()


def _integers(values: _Values) -> NDArray[np.int64]:
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError:
        return np.fromiter(map(_in_64_bits, values), dtype=np.int64, count=len(values))


def _in_64_bits(value: object) -> int:
    return max(_LEAST, min(_MOST, int(str(value))))


def _maybe_integers(values: _Values) -> ExtensionArray:
    missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
    numbers = _integers([0 if value is None else value for value in values])
    return pd.arrays.IntegerArray(numbers, missing)


def _numbers(values: _Values) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _truths(values: _Values) -> NDArray[np.bool_]:
    return np.fromiter(values, dtype=np.bool_, count=len(values))


def _maybe_truths(values: _Values) -> ExtensionArray:
    missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
    truths = np.fromiter((value is True for value in values), dtype=np.bool_, count=len(values))
    return pd.arrays.BooleanArray(truths, missing)


def _lists(values: _Values) -> NDArray[np.object_]:
    made = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        made[place] = value
    return made


def _times(values: _Values) -> pd.DatetimeIndex:
    """ISO texts, or ns; what is no time of a calendar, or further away than ns reach, is none."""
    if any(isinstance(value, str) for value in values):
        return _times_of_texts(cast("list[str]", values))  # None is NaT
    return _utc(_integers([_NOT_A_TIME if value is None else value for value in values]))


def _times_of_texts(texts: list[str]) -> pd.DatetimeIndex:
    if _IN_ARROW:
        with contextlib.suppress(ValueError):  # one of them is none: pandas says which
            return _utc(_ns_by_arrow(texts))
    try:
        found = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        return pd.DatetimeIndex(found).as_unit("ns")
    except (ValueError, OverflowError):
        return pd.DatetimeIndex([_time(value) for value in texts], dtype="datetime64[ns, UTC]")


def _ns_by_arrow(texts: Sequence[str]) -> NDArray[np.int64]:
    """The same times, eight times as quick as pandas reads them.

    Raises:
        ValueError: a text is no time with a zone.
    """
    import pyarrow as pa

    found = pa.array(texts, pa.string()).cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
    return cast("NDArray[np.int64]", found.fill_null(_NOT_A_TIME).to_numpy())


def _utc(ns: NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(ns.view("M8[ns]")).tz_localize("UTC")


def _time(value: object) -> pd.Timestamp | None:
    try:
        return pd.Timestamp(str(value)).tz_convert("UTC").as_unit("ns") if value else None
    except (ValueError, TypeError, OverflowError):
        return None


_MAKERS: Final[Mapping[Kind, Callable[[_Values], object]]] = {
    Kind.TEXT: _texts,
    Kind.INT: _integers,
    Kind.MAYBE_INT: _maybe_integers,
    Kind.NUMBER: _numbers,
    Kind.BOOL: _truths,
    Kind.MAYBE_BOOL: _maybe_truths,
    Kind.TIME: _times,
    Kind.INTS: _lists,
    Kind.TEXTS: _lists,
}
