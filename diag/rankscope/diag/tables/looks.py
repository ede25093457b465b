"""Snapshots as tables need them: no more of a file is decoded than a table shows.

A job of 16,384 ranks has millions of frames, and few distinct stacks: those are decoded once each, by their
bytes. Where the bytes come from (an incident's file, dumps) is the caller's business.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from rankscope.diag.merge.normalise import show_frame
from rankscope.diag.model import ExitFacts, Frame, Progress


class _Counted(msgspec.Struct, frozen=True, gc=False):
    """Something of which only the number is wanted."""


class BriefFacts(msgspec.Struct, frozen=True, gc=False):
    """Of ``ProcessFacts``."""

    state: str = ""
    wchan: str | None = None


class BriefChild(msgspec.Struct, frozen=True):
    """Of ``ChildSnapshot``."""

    threads: tuple[_Counted, ...] = ()


class BriefRank(msgspec.Struct, frozen=True):
    """Of ``RankSnapshot``, without stacks and record."""

    rank: int
    node: str = ""
    time: float = 0.0
    source: str | None = None
    threads: tuple[_Counted, ...] = ()
    children: tuple[BriefChild, ...] = ()
    facts: BriefFacts | None = None
    progress: Progress | None = None
    exit: ExitFacts | None = None


class RawThread(msgspec.Struct, frozen=True, gc=False):
    """Of ``ThreadStack``; its frames as they are in the file."""

    thread_id: int
    name: str | None
    frames: msgspec.Raw
    is_main: bool = False
    holds_gil: bool | None = None
    active: bool | None = None
    collecting: bool | None = None
    is_cut: bool = False


class RawChild(msgspec.Struct, frozen=True):
    """Of ``ChildSnapshot``."""

    pid: int
    threads: tuple[RawThread, ...] = ()


class RawRank(msgspec.Struct, frozen=True):
    """Of ``RankSnapshot``, the stacks."""

    rank: int
    node: str = ""
    pid: int = 0
    time: float = 0.0
    source: str | None = None
    threads: tuple[RawThread, ...] = ()
    children: tuple[RawChild, ...] = ()


class RawCall(msgspec.Struct, frozen=True, gc=False):
    """Of ``Collective``; what is the same for thousands of calls as it is in the file."""

    group: str
    seq: int
    op: str
    is_p2p: bool = False
    is_completed: bool = False
    is_started: bool | None = None
    input_sizes: msgspec.Raw = msgspec.Raw(b"[]")
    input_dtypes: msgspec.Raw = msgspec.Raw(b"[]")
    created_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    frames: msgspec.Raw = msgspec.Raw(b"[]")
    peer: int | None = None


class BriefGroup(msgspec.Struct, frozen=True, gc=False):
    """Of ``RecordedGroup``."""

    name: str
    enqueued: int = -1


class RawRecord(msgspec.Struct, frozen=True):
    """Of ``FlightRecord``."""

    groups: tuple[BriefGroup, ...] = ()
    entries: tuple[RawCall, ...] = ()


class BriefRecord(msgspec.Struct, frozen=True):
    """Of ``FlightRecord``, without operations."""

    groups: tuple[BriefGroup, ...] = ()


class StandingRank(msgspec.Struct, frozen=True):
    """Of ``RankSnapshot``, how far it had come."""

    rank: int
    progress: Progress | None = None
    record: BriefRecord | None = None


class RecordedRank(msgspec.Struct, frozen=True):
    """Of ``RankSnapshot``, the flight record, and the steps beside it."""

    rank: int
    node: str = ""
    time: float = 0.0
    progress: Progress | None = None
    record: RawRecord | None = None


RankT = TypeVar("RankT", BriefRank, RawRank, RecordedRank, StandingRank)


class LookOf(msgspec.Struct, Generic[RankT], frozen=True):
    """Of ``JobSnapshot``."""

    ranks: tuple[RankT, ...]
    time: float = 0.0
    schema: int = 0


class Stacks:
    """Stacks by the bytes they are stored as: leaf first, each frame as ``stacks()`` shows it."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, ...]] = {}
        self._decoder = msgspec.json.Decoder(tuple[Frame, ...])

    def shown(self, frames: msgspec.Raw) -> tuple[str, ...]:
        """One stack.

        Raises:
            msgspec.DecodeError: these are no frames.
        """
        stored = bytes(frames)
        found = self._known.get(stored)
        if found is None:
            found = self._known[stored] = tuple(map(show_frame, self._decoder.decode(stored)))
        return found


class Texts:
    """Lists in a record, in words, by the bytes they are stored as."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def shown(self, stored: msgspec.Raw) -> str:
        """Its elements, one behind the other: ``[4, 1024] [8]``, ``Float``."""
        key = bytes(stored)
        found = self._known.get(key)
        if found is None:
            values = msgspec.json.decode(key)
            found = " ".join(map(str, values)) if isinstance(values, list) else str(values)
            self._known[key] = found
        return found
