"""Finds the places in a block of bytes where a closer look pays: most lines of a log tell nothing.

A line that begins or belongs to anything a reader knows either holds one of the anchors itself, or stands
near one. It knows no format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_BEFORE_LINES: Final = 64  # lines before an anchor that are looked at, too: a process's header, a `[`
BEFORE_BYTES: Final = 1 << 15  # and how many bytes they may have


class AnchorScan:
    """The anchors of one block, in the order of the block."""

    def __init__(self, anchors: Iterable[bytes], block: bytes) -> None:
        self._block = block
        self._next = {anchor: at for anchor in anchors if (at := block.find(anchor)) >= 0}

    def first(self, start: int) -> int | None:
        """Position of the first anchor at or after ``start``, ``None`` when there is none."""
        best: int | None = None
        for anchor, at in list(self._next.items()):
            found = at
            if found < start:
                found = self._block.find(anchor, start)
                if found < 0:
                    del self._next[anchor]
                    continue
                self._next[anchor] = found
            if best is None or found < best:
                best = found
        return best

    def look_from(self, at: int, start: int) -> int:
        """Beginning of the first line worth looking at for an anchor at ``at``, not before ``start``."""
        floor = max(start, at - BEFORE_BYTES)
        begin = self._block.rfind(b"\n", start, at)
        for _ in range(_BEFORE_LINES):
            end = self._block.rfind(b"\n", floor, begin) if begin >= floor else -1
            if end < 0:
                return start if begin < 0 or floor == start else begin + 1
            begin = end
        return begin + 1
