"""A record as far as it can be read: of another version, or damaged, it still tells most of it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_EMPTY: tuple[object, ...] = ("", 0, None, ())


def read_leniently(data: Mapping[str, object], kind: type[T]) -> tuple[T, tuple[str, ...]]:
    """A struct from what an event carries.

    Args:
        data: the event's.
        kind: a struct whose fields without a default are texts or numbers.

    Returns:
        The struct, and the names of the fields that are missing, or of another shape than they should be:
        these are empty, or have their defaults.
    """
    try:
        return msgspec.convert(data, kind), ()
    except msgspec.ValidationError:
        pass
    values: dict[str, Any] = {}
    missing: list[str] = []
    for field in _fields(kind):
        try:
            values[field.name] = msgspec.convert(data[field.encode_name], field.type)
        except (KeyError, msgspec.ValidationError):
            if field.encode_name in data or field.required:
                missing.append(field.encode_name)
            if field.required:
                values[field.name] = _nothing(field.type)
    return kind(**values), tuple(missing)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _nothing(kind: object) -> object:
    for value in _EMPTY:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
    raise TypeError(f"no empty value of {kind}")
