"""The progress page: one memory-mapped file a node, one slot a local rank.

State sits in the page, events go through the pipe. Each field group of a slot has exactly one writer
(the training thread, the probe's thread or the agent), so that nobody ever takes a lock; a reader
detects a torn read by a counter that is written before and after the data, and retries.
All times are ``time.monotonic_ns()`` of this host, zero for "never".

Layout (little endian), sizes in bytes::

    header 64     magic "RSPG", version u32, slots u32, slot size u32, hold u32 (agent)
    slot   4096   0    identity (probe, once)  rank i64, pid i64, start ticks u64
                  64   step (training thread)  count u64, time u64, count again u64
                  128  beat (probe thread)     time u64, flags u64
                  320  answer (agent)          time u64: the raiser may go on
                  384  stage (training thread) version u64, limit f64, text 112
                  512  groups (probe thread)   version u64, count u64, 32 entries, version again
                  entry 80                     name 48, size, enqueued, completed i64, members hash u64
                  3200 raised (raising thread) time u64, text 504
                  3712 raised at (the same)    line, function and file of the user's code, text 384
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAGIC: Final = b"RSPG"
VERSION: Final = 1
HEADER_SIZE: Final = 64
SLOT_SIZE: Final = 4096
MAX_GROUPS: Final = 32
_HEADER: Final = struct.Struct("<4sIIII")
_HOLD_OFFSET: Final = 16
_IDENTITY: Final = struct.Struct("<qqQ")
_STEP: Final = struct.Struct("<QQQ")
_BEAT: Final = struct.Struct("<QQ")
_RAISED: Final = struct.Struct("<Q504s")
_PLACE: Final = struct.Struct("<384s")
_ANSWER: Final = struct.Struct("<Q")
_GROUP: Final = struct.Struct("<48sqqqQ")
_VERSION_COUNT: Final = struct.Struct("<QQ")
_U64: Final = struct.Struct("<Q")
_STEP_AT: Final = 64
_BEAT_AT: Final = 128
_RAISED_AT: Final = 3200
_ANSWER_AT: Final = 320
_GROUPS_AT: Final = 512
_GROUPS_END: Final = _GROUPS_AT + _VERSION_COUNT.size + MAX_GROUPS * _GROUP.size
_PLACE_AT: Final = SLOT_SIZE - _PLACE.size
_READ_TRIES: Final = 100
Place = tuple[str, str, int]
"""Function, file and line."""


class PageError(OSError):
    """The file is not a progress page, or not one this version can read."""


@dataclass(frozen=True, slots=True)
class GroupSeq:
    """Where one process group of one rank stands.

    Attributes:
        name: torch's group name, the same on every member.
        size: number of members.
        enqueued: sequence number of the last collective handed to the backend, -1 for none.
        completed: sequence number of the last collective known to be complete, -1 for none.
        members_hash: 64-bit hash of the members' global ranks, 0 when unknown.
    """

    name: str
    size: int
    enqueued: int
    completed: int
    members_hash: int = 0


@dataclass(frozen=True, slots=True)
class SlotView:
    """What one slot said at one moment.

    Attributes:
        rank: global rank, -1 when no worker has claimed the slot.
        pid: process of the worker, start_ticks its start time (``/proc/<pid>/stat`` field 22).
        step: optimizer steps seen, step_ns the time of the last one.
        beat_ns: last time the probe's thread ran.
        raised_ns: when the worker reported an uncaught exception, raised_text its last line.
        raised_at: function, file and line of the user's code that it came from, ``None`` when unknown.
        groups: process groups and their sequence numbers.
    """

    rank: int
    pid: int
    start_ticks: int
    step: int
    step_ns: int
    beat_ns: int
    raised_ns: int
    raised_text: str
    raised_at: Place | None
    groups: tuple[GroupSeq, ...]


def page_size_bytes(slots: int) -> int:
    """Size of a page file with ``slots`` slots."""
    return HEADER_SIZE + slots * SLOT_SIZE


def create_page(path: str | os.PathLike[str], slots: int) -> None:
    """Write an empty page beside ``path`` and rename it into place.

    Args:
        path: where workers will look for it.
        slots: one a local rank.

    Raises:
        OSError: the folder cannot be written; the caller goes on without a page.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    header = _HEADER.pack(MAGIC, VERSION, slots, SLOT_SIZE, 0)
    empty_slot = _IDENTITY.pack(-1, 0, 0).ljust(SLOT_SIZE, b"\0")
    # Written, not truncated to size: a sparse file on a full disk would give SIGBUS on a later write.
    beside.write_bytes(header.ljust(HEADER_SIZE, b"\0") + empty_slot * slots)
    beside.chmod(0o600)
    beside.replace(target)


def _map(path: str | os.PathLike[str]) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < HEADER_SIZE:
            raise PageError(f"{os.fspath(path)}: {size} bytes is too short for a progress page")
        mapped = mmap.mmap(fd, size)
    finally:
        os.close(fd)
    magic, version, slots, slot_size, _hold = _HEADER.unpack_from(mapped, 0)
    if magic != MAGIC or version != VERSION or slot_size != SLOT_SIZE or size < page_size_bytes(slots):
        mapped.close()
        raise PageError(f"{os.fspath(path)}: not a progress page of version {VERSION}")
    return mapped


class SlotWriter:
    """A worker's end of its slot. Never raises after construction; each method has one calling thread."""

    def __init__(self, path: str | os.PathLike[str], slot: int) -> None:
        """Map the page.

        Raises:
            OSError: no such page, or it is not one (``PageError``).
            IndexError: the page has no such slot.
        """
        self._map = _map(path)
        slots = _HEADER.unpack_from(self._map, 0)[2]
        if not 0 <= slot < slots:
            self._map.close()
            raise IndexError(f"{os.fspath(path)} has {slots} slots, no slot {slot}")
        self._base = HEADER_SIZE + slot * SLOT_SIZE
        self._step_at = self._base + _STEP_AT
        self._version = 0

    def claim(self, *, rank: int, pid: int, start_ticks: int) -> None:
        """Say who writes this slot; everything an earlier process left in it is wiped first."""
        size = SLOT_SIZE - _IDENTITY.size
        self._map[self._base + _IDENTITY.size : self._base + SLOT_SIZE] = bytes(size)
        _IDENTITY.pack_into(self._map, self._base, rank, pid, start_ticks)

    def step(self, count: int, now_ns: int) -> None:
        """Record optimizer step ``count`` (0.2-0.4 us: one pack into the map, called every step)."""
        _STEP.pack_into(self._map, self._step_at, count, now_ns, count)

    def beat(self, now_ns: int) -> None:
        """Say that the probe's thread ran: stale while the process runs means the GIL is held in C."""
        _BEAT.pack_into(self._map, self._base + _BEAT_AT, now_ns, 0)

    def groups(self, groups: tuple[GroupSeq, ...]) -> None:
        """Publish the process groups; those past ``MAX_GROUPS`` are left out."""
        kept = groups[:MAX_GROUPS]
        self._version += 2
        at = self._base + _GROUPS_AT
        _U64.pack_into(self._map, at, self._version - 1)
        _U64.pack_into(self._map, at + 8, len(kept))
        for index, group in enumerate(kept):
            name = group.name.encode("utf-8", "replace")[:48]
            entry = at + _VERSION_COUNT.size + index * _GROUP.size
            _GROUP.pack_into(
                self._map, entry, name, group.size, group.enqueued, group.completed, group.members_hash
            )
        _U64.pack_into(self._map, self._base + _GROUPS_END, self._version)
        _U64.pack_into(self._map, at, self._version)

    def raised(self, text: str, now_ns: int, place: Place | None = None) -> None:
        """Report an uncaught exception; ``text`` is its last line, ``place`` where it came from."""
        if place is not None:
            function, file, line = place
            packed = f"{line}\n{function[:120]}\n{file}".encode("utf-8", "replace")
            if len(packed) <= _PLACE.size:
                _PLACE.pack_into(self._map, self._base + _PLACE_AT, packed)
        _RAISED.pack_into(self._map, self._base + _RAISED_AT, now_ns, text.encode("utf-8", "replace")[:504])

    def hold_wanted(self) -> bool:
        """Whether the agent wants a raising worker to wait while evidence is taken."""
        return bool(_HEADER.unpack_from(self._map, 0)[4])

    def answered(self) -> bool:
        """Whether the agent has said that the raising worker may go on."""
        return bool(_ANSWER.unpack_from(self._map, self._base + _ANSWER_AT)[0])

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()


class PageReader:
    """The agent's (and anybody else's) end of a page. Never blocks, never takes a lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map the page.

        Raises:
            OSError: no such page, or it is not one (``PageError``).
        """
        self._map = _map(path)
        self.slots: int = _HEADER.unpack_from(self._map, 0)[2]

    def read(self, slot: int) -> SlotView:
        """Read one slot.

        Raises:
            IndexError: the page has no such slot.
        """
        if not 0 <= slot < self.slots:
            raise IndexError(f"no slot {slot} of {self.slots}")
        base = HEADER_SIZE + slot * SLOT_SIZE
        rank, pid, start_ticks = _IDENTITY.unpack_from(self._map, base)
        step, step_ns = self._read_step(base + _STEP_AT)
        beat_ns = _BEAT.unpack_from(self._map, base + _BEAT_AT)[0]
        raised_ns, raised_text = _RAISED.unpack_from(self._map, base + _RAISED_AT)
        return SlotView(
            rank=rank,
            pid=pid,
            start_ticks=start_ticks,
            step=step,
            step_ns=step_ns,
            beat_ns=beat_ns,
            raised_ns=raised_ns,
            raised_text=raised_text.rstrip(b"\0").decode("utf-8", "replace"),
            raised_at=_decode_place(_PLACE.unpack_from(self._map, base + _PLACE_AT)[0]),
            groups=self._read_groups(base),
        )

    def _read_step(self, at: int) -> tuple[int, int]:
        before = now_ns = 0
        for _ in range(_READ_TRIES):
            before, now_ns, after = _STEP.unpack_from(self._map, at)
            if before == after:
                break
        return before, now_ns

    def _read_groups(self, base: int) -> tuple[GroupSeq, ...]:
        at = base + _GROUPS_AT
        for _ in range(_READ_TRIES):
            version, count = _VERSION_COUNT.unpack_from(self._map, at)
            if version % 2:
                continue
            raw = bytes(self._map[at + _VERSION_COUNT.size : base + _GROUPS_END])
            again = _U64.unpack_from(self._map, base + _GROUPS_END)[0]
            if version == again == _U64.unpack_from(self._map, at)[0]:
                return _decode_groups(raw, min(count, MAX_GROUPS))
        return ()

    def want_hold(self, wanted: bool) -> None:  # noqa: FBT001 - a switch
        """Tell raising workers whether to wait for evidence (agent only)."""
        struct.pack_into("<I", self._map, _HOLD_OFFSET, int(wanted))

    def answer(self, slot: int, now_ns: int) -> None:
        """Tell the raising worker of ``slot`` that it may go on (agent only)."""
        _ANSWER.pack_into(self._map, HEADER_SIZE + slot * SLOT_SIZE + _ANSWER_AT, now_ns)

    def clear(self, slot: int) -> None:
        """Empty a slot before a worker is started in it (agent only)."""
        at = HEADER_SIZE + slot * SLOT_SIZE
        self._map[at : at + SLOT_SIZE] = _IDENTITY.pack(-1, 0, 0).ljust(SLOT_SIZE, b"\0")

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()


def _decode_place(raw: bytes) -> Place | None:
    line, _, rest = raw.rstrip(b"\0").decode("utf-8", "replace").partition("\n")
    function, _, file = rest.partition("\n")
    return (function, file, int(line)) if line.isdigit() else None


def _decode_groups(raw: bytes, count: int) -> tuple[GroupSeq, ...]:
    found: list[GroupSeq] = []
    for index in range(count):
        name, size, enqueued, completed, members = _GROUP.unpack_from(raw, index * _GROUP.size)
        text = name.rstrip(b"\0").decode("utf-8", "replace")
        found.append(GroupSeq(text, size, enqueued, completed, members))
    return tuple(found)
