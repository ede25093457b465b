"""One line of the table that ``make bench`` prints. It knows nothing of how the figures were measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HEADINGS: Final = ("row", "ours", "peer", "ratio", "bar", "")
_WIDTHS: Final = (53, 27, 32, 6, 36, 5)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured.
        ours: our figure with its unit, a median of several runs.
        peer: the peer's, measured in turn in the same run, and what the peer is.
        ratio: of the two, in the sense of the bar: how many times cheaper or faster ours is where the bar
            asks for that or is absolute, ours over the peer's where it allows a multiple of the peer's;
            0 where the peer has no figure.
        bar: what is to be reached.
        ok: whether it was.
    """

    name: str
    ours: str
    peer: str
    ratio: float
    bar: str
    ok: bool

    def line(self) -> str:
        """The row as text; columns are two or more spaces apart."""
        ratio = f"{self.ratio:.3g}x" if self.ratio else "-"
        return columns((self.name, self.ours, self.peer, ratio, self.bar, "ok" if self.ok else "short"))


def columns(cells: Iterable[str]) -> str:
    """Cells in the table's columns; a long one pushes the rest to the right."""
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip()
