"""One node's look as it travels: identical stacks once, packed, of bounded size, in parts. Pure.

A stack is a value of its own (its packed frames): whoever merges looks of many nodes decodes each distinct
stack once. What does not fit goes in the order of what it is worth to a verdict, and each rank says what it
lost. It must not know how it travels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import zstandard

from rankscope.agent.nodes.limits import CHUNK_BYTES
from rankscope.diag.model import (
    ChildSnapshot,
    Frame,
    FrameVariables,
    JobSnapshot,
    RankSnapshot,
    ThreadStack,
)

VERSION: Final = 1
LARGE_JOB: Final = 512
"""Ranks from which on a record keeps less: what the leader holds grows with the ranks."""
KEPT_ENTRIES: Final = 8
"""Newest ended operations of each group that a record keeps then, beside all that are open."""
MOST_UNPACKED: Final = 64 << 20
"""Bytes that a look of one node may have when it is unpacked: more is damage, or worse."""
_LEVEL: Final = 3
_pack = msgspec.msgpack.Encoder().encode


class FoldedThread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A thread whose frames are the stack of that number."""

    thread_id: int
    name: str | None
    stack: int
    is_main: bool
    holds_gil: bool | None
    active: bool | None
    collecting: bool | None
    is_cut: bool
    variables: tuple[FrameVariables, ...] = ()


class FoldedRank(msgspec.Struct, frozen=True, array_like=True):
    """A rank without frames, and where they are.

    Attributes:
        rank: everything else of it.
        threads: its threads; children those of each child process.
        entries: numbers of the stacks of its record's entries.
    """

    rank: RankSnapshot
    threads: tuple[FoldedThread, ...] = ()
    children: tuple[tuple[FoldedThread, ...], ...] = ()
    entries: tuple[int, ...] = ()


class FoldedLook(msgspec.Struct, frozen=True):
    """One node's look.

    Attributes:
        stacks: packed frames, leaf first; number 0 is no frames at all.
    """

    version: int
    job: str
    time: float
    world_size: int
    stacks: tuple[bytes, ...]
    ranks: tuple[FoldedRank, ...]


_Lighter = Callable[[RankSnapshot], RankSnapshot]


def fold_look(look: JobSnapshot, most_bytes: int) -> tuple[bytes, ...]:
    """Pack a look.

    Args:
        look: of the ranks of one node.
        most_bytes: it may have, packed.

    Returns:
        Its parts, each at most ``CHUNK_BYTES``. What had to be left out is in the ranks' ``reason``.
    """
    if look.world_size >= LARGE_JOB:
        look = _each(look, _with_short_record)
    packed = _packed(look)
    for lighter in _LIGHTER:
        if len(packed) <= most_bytes:
            break
        look = _each(look, lighter)
        packed = _packed(look)
    if len(packed) > most_bytes:
        reason = f"what was seen of it does not fit into {most_bytes >> 10} KiB"
        packed = _packed(_each(look, lambda rank: _only_named(rank, reason)))
    return tuple(packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES))


def unfold(parts: Sequence[bytes], known: dict[bytes, tuple[Frame, ...]]) -> JobSnapshot | None:
    """Unpack a look.

    Args:
        parts: as they were packed.
        known: stacks that were unpacked before, by their bytes; new ones are added. Equal stacks of all looks
            are one object.

    Returns:
        The look, ``None`` when it is none, or of another version.
    """
    try:
        data = _unpacked(b"".join(parts))
        folded = _unpack(data)
        if folded.version != VERSION:
            return None
        stacks = [_stack(packed, known) for packed in folded.stacks]
        ranks = tuple([_whole(one, stacks) for one in folded.ranks])
    except (msgspec.DecodeError, zstandard.ZstdError, IndexError, ValueError):
        return None
    return JobSnapshot(folded.job, folded.time, folded.world_size, ranks)


_unpack = msgspec.msgpack.Decoder(FoldedLook).decode
_unpack_stack = msgspec.msgpack.Decoder(tuple[Frame, ...]).decode


def _stack(packed: bytes, known: dict[bytes, tuple[Frame, ...]]) -> tuple[Frame, ...]:
    frames = known.get(packed)
    if frames is None:
        frames = known[packed] = _unpack_stack(packed)
    return frames


def _unpacked(data: bytes) -> bytes:
    if zstandard.get_frame_parameters(data).content_size > MOST_UNPACKED:
        raise ValueError("too large")
    return zstandard.ZstdDecompressor().decompress(data)


def _packed(look: JobSnapshot) -> bytes:
    stacks = _Stacks()
    ranks = tuple(_folded(rank, stacks) for rank in look.ranks)
    numbered = tuple(stacks.numbers)
    folded = FoldedLook(VERSION, look.job, look.time, look.world_size, numbered, ranks)
    return zstandard.ZstdCompressor(level=_LEVEL).compress(_pack(folded))


class _Stacks:
    """The distinct stacks of one look."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {_pack(()): 0}
        self._known: dict[tuple[Frame, ...], int] = {}

    def number(self, frames: tuple[Frame, ...]) -> int:
        number = self._known.get(frames)
        if number is None:
            packed = _pack(frames)
            number = self._known[frames] = self.numbers.setdefault(packed, len(self.numbers))
        return number


def _folded(rank: RankSnapshot, stacks: _Stacks) -> FoldedRank:
    record = rank.record
    entries = record.entries if record is not None else ()
    bare = msgspec.structs.replace(
        rank,
        threads=(),
        children=tuple(msgspec.structs.replace(child, threads=()) for child in rank.children),
        record=record
        and msgspec.structs.replace(
            record, entries=tuple(msgspec.structs.replace(one, frames=()) for one in entries)
        ),
    )
    return FoldedRank(
        bare,
        _folded_threads(rank.threads, stacks),
        tuple(_folded_threads(child.threads, stacks) for child in rank.children),
        tuple(stacks.number(one.frames) for one in entries),
    )


def _folded_threads(threads: tuple[ThreadStack, ...], stacks: _Stacks) -> tuple[FoldedThread, ...]:
    return tuple(
        FoldedThread(
            one.thread_id,
            one.name,
            stacks.number(one.frames),
            one.is_main,
            one.holds_gil,
            one.active,
            one.collecting,
            one.is_cut,
            one.variables,
        )
        for one in threads
    )


def _whole(folded: FoldedRank, stacks: list[tuple[Frame, ...]]) -> RankSnapshot:
    rank = folded.rank
    record = rank.record
    if record is not None and any(folded.entries):
        entries = zip(record.entries, folded.entries, strict=True)
        with_frames = [msgspec.structs.replace(one, frames=stacks[number]) for one, number in entries]
        record = msgspec.structs.replace(record, entries=tuple(with_frames))
    children = rank.children
    if children:
        pairs = zip(children, folded.children, strict=True)
        children = tuple(
            msgspec.structs.replace(child, threads=_whole_threads(threads, stacks))
            for child, threads in pairs
        )
    return msgspec.structs.replace(
        rank, threads=_whole_threads(folded.threads, stacks), children=children, record=record
    )


def _whole_threads(
    folded: tuple[FoldedThread, ...], stacks: list[tuple[Frame, ...]]
) -> tuple[ThreadStack, ...]:
    return tuple(
        [
            ThreadStack(
                one.thread_id,
                one.name,
                stacks[one.stack],
                one.is_main,
                one.holds_gil,
                one.active,
                one.collecting,
                one.variables,
                one.is_cut,
            )
            for one in folded
        ]
    )


# What goes when it does not fit, in this order.


def _each(look: JobSnapshot, lighter: _Lighter) -> JobSnapshot:
    return msgspec.structs.replace(look, ranks=tuple(lighter(rank) for rank in look.ranks))


def _without_variables(rank: RankSnapshot) -> RankSnapshot:
    threads = tuple(msgspec.structs.replace(one, variables=()) for one in rank.threads)
    return _lost(msgspec.structs.replace(rank, threads=threads), "local variables")


def _without_old_entries(rank: RankSnapshot) -> RankSnapshot:
    return _lost(_with_short_record(rank), "older operations")


def _without_children(rank: RankSnapshot) -> RankSnapshot:
    bare = tuple(ChildSnapshot(one.pid, one.facts, (), "left out: too large") for one in rank.children)
    return _lost(msgspec.structs.replace(rank, children=bare), "stacks of child processes")


def _with_main_thread_alone(rank: RankSnapshot) -> RankSnapshot:
    kept = tuple(one for one in rank.threads if one.is_main or one.holds_gil)
    return _lost(msgspec.structs.replace(rank, threads=kept, connections=()), "other threads")


_LIGHTER: Final[tuple[_Lighter, ...]] = (
    _without_variables,
    _without_old_entries,
    _without_children,
    _with_main_thread_alone,
)


def _lost(rank: RankSnapshot, what: str) -> RankSnapshot:
    said = f"{rank.reason}; " if rank.reason else ""
    return msgspec.structs.replace(rank, reason=f"{said}left out to keep the message small: {what}")


def _only_named(rank: RankSnapshot, reason: str) -> RankSnapshot:
    return RankSnapshot(
        rank=rank.rank,
        node=rank.node,
        pid=rank.pid,
        time=rank.time,
        observed=False,
        reason=reason,
        exit=rank.exit,
    )


def _with_short_record(rank: RankSnapshot) -> RankSnapshot:
    record = rank.record
    if record is None:
        return rank
    kept: list[int] = []
    ended: dict[tuple[str, bool], int] = {}
    for number in range(len(record.entries) - 1, -1, -1):
        one = record.entries[number]
        key = (one.group, one.is_p2p)
        if one.is_completed:
            ended[key] = ended.get(key, 0) + 1
        if not one.is_completed or ended[key] <= KEPT_ENTRIES:
            kept.append(number)
    if len(kept) == len(record.entries):
        return rank
    entries = tuple(record.entries[number] for number in reversed(kept))
    return msgspec.structs.replace(
        rank, record=msgspec.structs.replace(record, entries=entries, is_whole=False)
    )
