"""What stands in the store, but for the looks: small records, JSON, each written whole.

A record of another version, or a damaged one, is nobody's: decoding answers ``None`` and the protocol goes on
as if it was not there. It must not know when one is written.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from rankscope.diag.classify import SlowLook
from rankscope.diag.model import Decision

T = TypeVar("T", bound=msgspec.Struct)
END_OF_HEAD: Final = b"\n"


class Member(msgspec.Struct, frozen=True):
    """One agent of a round.

    Attributes:
        rank: its group rank; size the number of agents.
        node: its name.
        ranks: the global ranks of its workers.
    """

    rank: int
    size: int
    node: str
    ranks: tuple[int, ...]


class Opening(msgspec.Struct, frozen=True):
    """What opened an incident.

    Attributes:
        incident: its id, the same in the records of all nodes.
        rank: group rank of the agent; node its name.
        reason: a phrase.
        time: unix time there, seconds.
        silent: for how long it saw no progress, seconds.
        overdue: whether that is ten times what working ranks are given.
        asked: whether somebody wants to know, and nobody suspects anything.
        slow: what is wanted to be known is what is slow, with what is known of the pace there.
    """

    incident: str
    rank: int
    node: str
    reason: str
    time: float
    silent: float = 0.0
    overdue: bool = False
    asked: bool = False
    slow: SlowLook | None = None


class Lead(msgspec.Struct, frozen=True):
    """Who leads in a term."""

    rank: int
    term: int
    node: str


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """One count on the shared counter, and between which moments of the own clock it was made.

    Attributes:
        count: what the counter said.
        began: unix time before the call, seconds; ended after it.
    """

    count: int
    began: float
    ended: float


class LookHead(msgspec.Struct, frozen=True):
    """Stands before the bytes of part 0 of a look.

    Attributes:
        rank: group rank of the agent; node its name.
        parts: how many parts there are, this one included.
        marks: those that the agent has made so far.
    """

    rank: int
    node: str
    parts: int
    marks: tuple[Mark, ...] = ()


class Ruling(msgspec.Struct, frozen=True):
    """How an incident ends: with a decision for all nodes, or with nothing to be done.

    Attributes:
        incident: its id.
        rank: group rank of the agent that wrote it; node its name.
        reason: a sentence.
        decision: what all nodes do, ``None`` for nothing: it was no hang, or it is over.
        leaving: nodes that leave the job, by name.
        goes_on: whether the job goes on somewhere.
    """

    incident: str
    rank: int
    node: str
    reason: str
    decision: Decision | None = None
    leaving: tuple[str, ...] = ()
    goes_on: bool = False


def encode(record: msgspec.Struct) -> bytes:
    """The record as it stands in the store; never empty, and no line break in it."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[T]) -> T | None:
    """Read a record, ``None`` when it is none of this kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def with_head(head: LookHead, part: bytes) -> bytes:
    """Part 0 as it is written."""
    return encode(head) + END_OF_HEAD + part


def split_head(data: bytes) -> tuple[LookHead, bytes] | None:
    """Part 0 as it was read, ``None`` when it is none."""
    first, found, rest = data.partition(END_OF_HEAD)
    head = decode(first, LookHead) if found else None
    return (head, rest) if head is not None and head.parts > 0 else None
