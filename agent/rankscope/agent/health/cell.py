"""A record in shared memory with one writer at a time and any number of readers, none of which waits.

A seqlock over two slots: the writer fills the slot that is not current and then makes it current, so that
a writer that is stopped or killed halfway leaves the last whole record behind. The CRC, over the data and
seeded with the sequence number, stands in for the memory fences that Python does not have.

Layout (little endian): at ``current_at`` the current sequence number u64; at ``slots_at`` two slots, each
sequence u64, length u32, CRC-32 u32, data. An even sequence number is in the first slot.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from typing import Final

_CURRENT: Final = struct.Struct("<Q")
_SLOT: Final = struct.Struct("<QII")
SLOT_HEADER_SIZE: Final = _SLOT.size
_READ_TRIES: Final = 100


class SeqCell:
    """Two slots and the sequence number of the one that holds."""

    def __init__(self, page: mmap.mmap, place: tuple[int, int, int]) -> None:
        self._page = page
        self._current_at, self._slots_at, self._slot_size = place
        self.limit_bytes = self._slot_size - _SLOT.size

    def current(self) -> int:
        """Sequence number of the record that holds, 0 for none."""
        return int(_CURRENT.unpack_from(self._page, self._current_at)[0])

    def write(self, data: bytes) -> None:
        """Make ``data`` (at most ``limit_bytes``) the record; one caller at a time."""
        sequence = self.current() + 1
        at = self._slots_at + sequence % 2 * self._slot_size
        start = at + _SLOT.size
        self._page[start : start + len(data)] = data
        _SLOT.pack_into(self._page, at, sequence, len(data), zlib.crc32(data, sequence & 0xFFFFFFFF))
        _CURRENT.pack_into(self._page, self._current_at, sequence)

    def read(self) -> tuple[int, bytes]:
        """Sequence number and data; ``(0, b"")`` when there is none or it changed all the time."""
        for _ in range(_READ_TRIES):
            sequence = self.current()
            if sequence == 0:
                break
            at = self._slots_at + sequence % 2 * self._slot_size
            written, length, crc = _SLOT.unpack_from(self._page, at)
            start = at + _SLOT.size
            data = bytes(self._page[start : start + min(length, self.limit_bytes)])
            if written == sequence and zlib.crc32(data, sequence & 0xFFFFFFFF) == crc:
                return sequence, data
        return 0, b""
