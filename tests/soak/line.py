"""One line of what a soak is judged by, and how quantities are shown. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

MIB: Final = 1 << 20
_MANY: Final = 8192


class Line(msgspec.Struct, frozen=True):
    """One line of the table.

    Attributes:
        name: what was looked at.
        found: what was found.
        bar: what it must be.
        ok: whether it is.
    """

    name: str
    found: str
    bar: str
    ok: bool


def shown(value: float, *, signed: bool = False) -> str:
    """Bytes in MiB where there are many, anything else as it is."""
    sign = "+" if signed else ""
    return f"{value / MIB:{sign}.2f} MiB" if abs(value) >= _MANY else f"{value:{sign}.3g}"
