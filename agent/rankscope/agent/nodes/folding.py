"""One node's look as it travels: identical stacks once, packed, of bounded size, in parts. Pure.

A stack is a value of its own (its packed frames), and so are a rank's threads and its record: whoever merges
looks of many nodes decodes each distinct stack once, and of a second look only what is new. What does not fit
goes in the order of what it is worth to a verdict, and each rank says what it lost. It must not know how it
travels.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import zstandard

from rankscope.agent.nodes.limits import CHUNK_BYTES
from rankscope.diag.model import (
    ChildSnapshot,
    FlightRecord,
    Frame,
    FrameVariables,
    JobSnapshot,
    RankSnapshot,
    ThreadStack,
)

VERSION: Final = 2
LARGE_JOB: Final = 512
"""Ranks from which on a record keeps less: what the leader holds grows with the ranks."""
KEPT_ENTRIES: Final = 8
"""Newest ended operations of each group that a record keeps then, beside all that are open."""
MOST_UNPACKED: Final = 64 << 20
"""Bytes that a look of one node may have when it is unpacked: more is damage, or worse."""
_LEVEL: Final = 3
_pack = msgspec.msgpack.Encoder().encode


_Frames = tuple[Frame, ...]


class FoldedThread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A thread without its frames."""

    thread_id: int
    name: str | None
    is_main: bool
    holds_gil: bool | None
    active: bool | None
    collecting: bool | None
    is_cut: bool
    variables: tuple[FrameVariables, ...] = ()


class Folded(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Threads, or the entries of a record, and where their frames are.

    Attributes:
        packed: a tuple of ``FoldedThread``, or a ``FlightRecord`` whose entries have no frames.
        stacks: for each the number of its stack.
    """

    packed: bytes
    stacks: tuple[int, ...]


class FoldedRank(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rank, and what of it is packed on its own.

    Attributes:
        rank: everything else of it.
        threads: its threads; children those of each child process.
        record: its flight record, ``None`` without.
    """

    rank: RankSnapshot
    threads: Folded
    children: tuple[Folded, ...] = ()
    record: Folded | None = None


class FoldedMoment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ranks of one node at one time."""

    time: float
    ranks: tuple[FoldedRank, ...]


class FoldedLook(msgspec.Struct, frozen=True, gc=False):
    """One node's look.

    Attributes:
        stacks: packed frames, leaf first; number 0 is no frames at all.
        between: looks in quick succession between this one and the next.
    """

    version: int
    job: str
    time: float
    world_size: int
    stacks: tuple[bytes, ...]
    ranks: tuple[FoldedRank, ...]
    between: tuple[FoldedMoment, ...] = ()


_Lighter = Callable[[RankSnapshot], RankSnapshot]


def fold_look(
    look: JobSnapshot, most_bytes: int, *, between: Sequence[JobSnapshot] = ()
) -> tuple[bytes, ...]:
    """Pack a look.

    Args:
        look: of the ranks of one node.
        most_bytes: it may have, packed.
        between: looks in quick succession between this one and the next. A large job's show main threads.

    Returns:
        Its parts, each at most ``CHUNK_BYTES``. What had to be left out is in the ranks' ``reason``.
    """
    if look.world_size >= LARGE_JOB:
        look = _each(look, _with_short_record)
        between = [_each(one, _bare) for one in between]
    packed = _packed(look, between)
    if len(packed) > most_bytes and between:
        look = _each(look, lambda rank: _lost(rank, "looks in quick succession"))
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


_Part = TypeVar("_Part")


@dataclass(slots=True)
class Known:
    """What was unpacked of earlier looks.

    Attributes:
        stacks: by their bytes. Equal stacks of all looks are one object.
        parts: threads and records by the digest of their bytes, with the frames that they were put together
            with: in a job that stands still the second look of a rank has those of its first.
    """

    stacks: dict[bytes, _Frames] = field(default_factory=dict[bytes, _Frames])
    parts: dict[bytes, tuple[list[_Frames], Any]] = field(
        default_factory=dict[bytes, tuple[list[_Frames], Any]]
    )

    def stack(self, packed: bytes) -> _Frames:
        """The frames of a stack."""
        frames = self.stacks.get(packed)
        if frames is None:
            frames = self.stacks[packed] = _unpack_stack(packed)
        return frames

    def part(
        self, folded: Folded, stacks: list[_Frames], put_together: Callable[[bytes, list[_Frames]], _Part]
    ) -> _Part:
        """Threads or a record with their frames.

        Args:
            folded: what was packed.
            stacks: those of its look, by number.
            put_together: makes it of its bytes and the frames of its members.
        """
        frames = [stacks[number] for number in folded.stacks]
        digest = hashlib.blake2b(folded.packed, digest_size=16).digest()
        before = self.parts.get(digest)
        if before is not None and len(before[0]) == len(frames) and all(map(operator.is_, before[0], frames)):
            part: _Part = before[1]
            return part
        part = put_together(folded.packed, frames)
        self.parts[digest] = frames, part
        return part


def unfold(parts: Sequence[bytes], known: Known) -> tuple[JobSnapshot, ...]:
    """Unpack a look.

    Args:
        parts: as they were packed.
        known: what was unpacked before; what is new is added.

    Returns:
        The look, and those between it and the next; empty when it is none, or of another version.
    """
    try:
        data = _unpacked(b"".join(parts))
        folded = _unpack(data)
        if folded.version != VERSION:
            return ()
        stacks = [known.stack(packed) for packed in folded.stacks]
        moments = (FoldedMoment(folded.time, folded.ranks), *folded.between)
        ranks = [tuple([_whole(rank, stacks, known) for rank in one.ranks]) for one in moments]
    except (msgspec.DecodeError, zstandard.ZstdError, IndexError, ValueError):
        return ()
    return tuple(
        JobSnapshot(folded.job, moment.time, folded.world_size, seen)
        for moment, seen in zip(moments, ranks, strict=True)
    )


_unpack = msgspec.msgpack.Decoder(FoldedLook).decode
_unpack_stack = msgspec.msgpack.Decoder(_Frames).decode
_unpack_threads = msgspec.msgpack.Decoder(tuple[FoldedThread, ...]).decode
_unpack_record = msgspec.msgpack.Decoder(FlightRecord).decode


def _unpacked(data: bytes) -> bytes:
    if zstandard.get_frame_parameters(data).content_size > MOST_UNPACKED:
        raise ValueError("too large")
    return zstandard.ZstdDecompressor().decompress(data)


def _packed(look: JobSnapshot, between: Sequence[JobSnapshot] = ()) -> bytes:
    stacks = _Stacks()
    ranks, *others = (tuple(_folded(rank, stacks) for rank in one.ranks) for one in (look, *between))
    moments = tuple(FoldedMoment(one.time, seen) for one, seen in zip(between, others, strict=True))
    numbered = tuple(stacks.numbers)
    folded = FoldedLook(VERSION, look.job, look.time, look.world_size, numbered, ranks, moments)
    return zstandard.ZstdCompressor(level=_LEVEL).compress(_pack(folded))


class _Stacks:
    """The distinct stacks of one look."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {_pack(()): 0}
        self._known: dict[_Frames, int] = {}

    def number(self, frames: _Frames) -> int:
        number = self._known.get(frames)
        if number is None:
            packed = _pack(frames)
            number = self._known[frames] = self.numbers.setdefault(packed, len(self.numbers))
        return number


def _folded(rank: RankSnapshot, stacks: _Stacks) -> FoldedRank:
    bare = msgspec.structs.replace(
        rank,
        threads=(),
        children=tuple(msgspec.structs.replace(child, threads=()) for child in rank.children),
        record=None,
    )
    return FoldedRank(
        bare,
        _folded_threads(rank.threads, stacks),
        tuple(_folded_threads(child.threads, stacks) for child in rank.children),
        _folded_record(rank.record, stacks) if rank.record is not None else None,
    )


def _folded_threads(threads: tuple[ThreadStack, ...], stacks: _Stacks) -> Folded:
    bare = tuple(
        FoldedThread(
            one.thread_id,
            one.name,
            one.is_main,
            one.holds_gil,
            one.active,
            one.collecting,
            one.is_cut,
            one.variables,
        )
        for one in threads
    )
    return Folded(_pack(bare), tuple(stacks.number(one.frames) for one in threads))


def _folded_record(record: FlightRecord, stacks: _Stacks) -> Folded:
    bare = tuple(msgspec.structs.replace(one, frames=()) for one in record.entries)
    packed = _pack(msgspec.structs.replace(record, entries=bare))
    return Folded(packed, tuple(stacks.number(one.frames) for one in record.entries))


def _whole(folded: FoldedRank, stacks: list[_Frames], known: Known) -> RankSnapshot:
    rank = folded.rank
    pairs = zip(rank.children, folded.children, strict=True)
    return msgspec.structs.replace(
        rank,
        threads=known.part(folded.threads, stacks, _whole_threads),
        children=tuple(
            [
                msgspec.structs.replace(child, threads=known.part(threads, stacks, _whole_threads))
                for child, threads in pairs
            ]
        ),
        record=folded.record and known.part(folded.record, stacks, _whole_record),
    )


def _whole_threads(packed: bytes, frames: list[_Frames]) -> tuple[ThreadStack, ...]:
    return tuple(
        [
            ThreadStack(
                one.thread_id,
                one.name,
                stack,
                one.is_main,
                one.holds_gil,
                one.active,
                one.collecting,
                one.variables,
                one.is_cut,
            )
            for one, stack in zip(_unpack_threads(packed), frames, strict=True)
        ]
    )


def _whole_record(packed: bytes, frames: list[_Frames]) -> FlightRecord:
    record = _unpack_record(packed)
    pairs = zip(record.entries, frames, strict=True)
    entries = [msgspec.structs.replace(one, frames=stack) if stack else one for one, stack in pairs]
    return msgspec.structs.replace(record, entries=tuple(entries))


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
    return _lost(_bare(rank), "other threads")


def _bare(rank: RankSnapshot) -> RankSnapshot:
    kept = tuple(one for one in rank.threads if one.is_main or one.holds_gil)
    return msgspec.structs.replace(rank, threads=kept, connections=())


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
