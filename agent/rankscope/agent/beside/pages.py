"""The progress pages of a job's ranks on this host, read as one: two agents of one job have two pages."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.discover import FoundRank
from rankscope.watchdog.page import PageReader, SlotView

_NOBODY = SlotView(-1, 0, 0, 0, 0, 0, 0, "", None, ())


class Pages:
    """Slot ``n`` is that of the ``n``-th rank. Reads only, never raises after it was made.

    Args:
        ranks: the ranks of one launch.
    """

    def __init__(self, ranks: Sequence[FoundRank]) -> None:
        self._readers: dict[str, PageReader] = {}
        self._slots = [self._open(rank) for rank in ranks]

    def _open(self, rank: FoundRank) -> tuple[PageReader, int] | None:
        if rank.page is None or rank.slot is None:
            return None
        try:
            reader = self._readers.get(rank.page) or PageReader(rank.page)
        except OSError:
            return None
        self._readers[rank.page] = reader
        return (reader, rank.slot) if rank.slot < reader.slots else None

    def read(self, slot: int) -> SlotView:
        """What a rank's probe has written; nobody's slot when it has none."""
        place = self._slots[slot]
        try:
            return _NOBODY if place is None else place[0].read(place[1])
        except ValueError:  # closed meanwhile
            return _NOBODY

    def close(self) -> None:
        """Unmap all pages."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._slots = [None for _ in self._slots]
