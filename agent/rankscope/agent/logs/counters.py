"""Two numbers a stream and a beat, in anonymous memory that drain (writer) and agent (reader) share.

So the agent knows how much each rank has written without touching a file system that may hang, and a drain
that replaces a dead one knows where the console stopped. Nothing here knows what a stream is.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

SLOTS: Final = 4095
"""Streams that can be open at the same time; 16 are made for each attempt of 8 workers."""
_PAIR: Final = struct.Struct("<QQ")
_U64: Final = struct.Struct("<Q")
_BEAT_AT: Final = SLOTS * _PAIR.size
_SIZE: Final = _BEAT_AT + _PAIR.size


def create_counters() -> int:
    """Make the shared memory, zeroed; the caller owns the descriptor.

    Raises:
        OSError: the kernel has none to give.
    """
    fd = os.memfd_create("rankscope-logs")
    try:
        os.ftruncate(fd, _SIZE)
    except OSError:
        os.close(fd)
        raise
    return fd


class Counters:
    """A map of the shared memory; slots count from 0, numbers only grow while a slot has one owner."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE)

    def seen_bytes(self, slot: int) -> int:
        """Bytes taken out of the slot's pipe so far."""
        return int(_PAIR.unpack_from(self._map, slot * _PAIR.size)[0])

    def shown_to(self, slot: int) -> int:
        """Position in the slot's file up to which the console has been written."""
        return int(_PAIR.unpack_from(self._map, slot * _PAIR.size)[1])

    def set_seen(self, slot: int, size_bytes: int) -> None:
        """Record what was taken out of the pipe."""
        _U64.pack_into(self._map, slot * _PAIR.size, size_bytes)

    def set_shown(self, slot: int, position: int) -> None:
        """Record how far the console got."""
        _U64.pack_into(self._map, slot * _PAIR.size + _U64.size, position)

    def clear(self, slot: int) -> None:
        """Zero a slot for a new stream."""
        _PAIR.pack_into(self._map, slot * _PAIR.size, 0, 0)

    def beat(self) -> int:
        """A number that grows while the drain's main thread moves and something happens."""
        return int(_U64.unpack_from(self._map, _BEAT_AT)[0])

    def set_beat(self, beat: int) -> None:
        """Say that the drain's main thread moves."""
        _U64.pack_into(self._map, _BEAT_AT, beat)

    def close(self) -> None:
        """Unmap the memory."""
        self._map.close()
