"""The progress page: one memory-mapped file a node, one slot a local rank.

State sits in the page, events go through the pipe. Each field group of a slot has exactly one writer
(the training thread, the probe's thread or the agent), so that nobody ever takes a lock. A record is packed
first and then copied into the map in one go: ``Struct.pack_into`` zeroes its target before it writes, and
a reader in between would see "never". In which order a copy arrives nobody promises, so a reader looks until
two looks are the same and the number at the front is the one at the end; after a bounded number
of looks (the writer was stopped in the middle) it takes what is there.
All times are ``time.monotonic_ns()`` of this host, zero for "never". Workers import this at interpreter
start, so it imports little.

Layout (little endian), sizes in bytes::

    header 64     magic "RSPG", version u32, slots u32, slot size u32, hold u32 (agent)
    slot   4096   0    identity (probe, once)  rank i64, pid i64, start ticks u64
                  64   step (training thread)  count u64, time u64, count again u64
                  96   user's step (SDK)       number i64, time u64, number again i64
                  128  beat (probe thread)     time u64, batches u64, time again u64
                  192  returned (main thread)  time u64: the script has ended, the process has not
                  320  answer (agent)          time u64: the raiser may go on
                  384  intervals (SDK)         version u64, interval f64, stage f64, stage's name 96,
                                               version again u64; NaN for "not set", -1 for "off"
                  512  groups (probe thread)   version u64, count u64, 32 entries, version again
                  entry 80                     name 48, size, enqueued, completed i64, members hash u64
                  3200 raised (raising thread) time u64, text 504
                  3712 raised at (the same)    line, function and file of the user's code, text 384
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import Final, NamedTuple

MAGIC: Final = b"RSPG"
VERSION: Final = 2
HEADER_SIZE: Final = 64
SLOT_SIZE: Final = 4096
MAX_GROUPS: Final = 32
_HEADER: Final = struct.Struct("<4sIIII")
_HOLD_OFFSET: Final = 16
_IDENTITY: Final = struct.Struct("<qqQ")
_STEP: Final = struct.Struct("<QQQ")
_USER_STEP: Final = struct.Struct("<qQq")
_BEAT: Final = struct.Struct("<QQQ")
_INTERVALS: Final = struct.Struct("<dd96s")
_RAISED: Final = struct.Struct("<Q504s")
_PLACE: Final = struct.Struct("<384s")
_ANSWER: Final = struct.Struct("<Q")
_GROUP: Final = struct.Struct("<48sqqqQ")
_COUNT: Final = struct.Struct("<Q")
_U64: Final = struct.Struct("<Q")
_STEP_AT: Final = 64
_USER_STEP_AT: Final = 96
_BEAT_AT: Final = 128
_RETURNED_AT: Final = 192
_INTERVALS_AT: Final = 384
_INTERVALS_END: Final = 504
_RAISED_AT: Final = 3200
_ANSWER_AT: Final = 320
_GROUPS_AT: Final = 512
_GROUPS_END: Final = _GROUPS_AT + 2 * 8 + MAX_GROUPS * _GROUP.size
_PLACE_AT: Final = SLOT_SIZE - _PLACE.size
_STDERR: Final = 2
_READ_TRIES: Final = 100
_I64_MIN: Final = -(2**63)
_I64_MAX: Final = 2**63 - 1
Place = tuple[str, str, int]
"""Function, file and line."""


class PageError(OSError):
    """The file is not a progress page, or not one this version can read."""


class GroupSeq(NamedTuple):
    """Where one process group of one rank stands.

    Attributes:
        name: torch's group name, the same on every member.
        size: number of members.
        enqueued: sequence number of the last collective handed to the backend, -1 for none.
        completed: sequence number of the last collective known to be complete, -1 for none.
        members_hash: 64-bit hash of the members' global ranks, 0 when unknown. Older torch names
            the parts of one ``split_group`` alike: name and members together are a group.
    """

    name: str
    size: int
    enqueued: int
    completed: int
    members_hash: int = 0


class SlotView(NamedTuple):
    """What one slot said at one moment.

    Attributes:
        rank: global rank, -1 when no worker has claimed the slot.
        pid: process of the worker, start_ticks its start time (``/proc/<pid>/stat`` field 22).
        step: optimizer steps seen, step_ns the time of the last one.
        user_step: what the script last gave to ``Monitor.step``, user_step_ns when.
        beat_ns: last time the probe's thread ran.
        batches: batches that data loaders have given to the training script, as of that beat.
        returned_ns: when the main thread had run the script to its end and waits for other threads.
        interval: the rank's own job-hang-interval in seconds, -1 for off, ``None`` for not set.
        stage_limit: the same for the stage (``hang_detect``) that the rank is in.
        stage: name of that stage, ``""`` for none.
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
    user_step: int = 0
    user_step_ns: int = 0
    batches: int = 0
    returned_ns: int = 0
    interval: float | None = None
    stage_limit: float | None = None
    stage: str = ""


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
    from pathlib import Path

    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    header = _HEADER.pack(MAGIC, VERSION, slots, SLOT_SIZE, 0)
    empty_slot = _IDENTITY.pack(-1, 0, 0).ljust(SLOT_SIZE, b"\0")
    # Written, not truncated to size: a sparse file on a full disk would give SIGBUS on a later write.
    beside.write_bytes(header.ljust(HEADER_SIZE, b"\0") + empty_slot * slots)
    beside.chmod(0o600)
    beside.replace(target)


def _map(path: str | os.PathLike[str]) -> mmap.mmap:
    opened = [os.open(path, os.O_RDWR | os.O_CLOEXEC)]
    try:
        size = os.fstat(opened[0]).st_size
        if size < HEADER_SIZE:
            raise PageError(f"{os.fspath(path)}: {size} bytes is too short for a progress page")
        # A map keeps a duplicate at the lowest free number. In a process whose standard output is closed that
        # would be the number it prints to, so those numbers are taken until the map has its own.
        while opened[-1] <= _STDERR:
            opened.append(os.dup(opened[-1]))
        mapped = mmap.mmap(opened[-1], size)
    finally:
        for fd in opened:
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
        step_at = self._base + _STEP_AT
        self._step_bytes = slice(step_at, step_at + _STEP.size)
        user_step_at = self._base + _USER_STEP_AT
        self._user_step_bytes = slice(user_step_at, user_step_at + _USER_STEP.size)
        self._groups_version = 0
        self._intervals_version = 0

    def claim(self, *, rank: int, pid: int, start_ticks: int) -> None:
        """Say who writes this slot; everything an earlier process left in it is wiped."""
        self._put(0, _IDENTITY.pack(rank, pid, start_ticks).ljust(SLOT_SIZE, b"\0"))

    def step(self, count: int, now_ns: int) -> None:
        """Record optimizer step ``count`` (0.2-0.4 us: one copy into the map, called every step)."""
        self._map[self._step_bytes] = _STEP.pack(count, now_ns, count)

    def user_step(self, number: int, now_ns: int) -> None:
        """Record the script's own step number; any call is progress, whatever the number.

        A number that has no place in 64 bits is stored as the nearest one that has.
        """
        if not _I64_MIN <= number <= _I64_MAX:
            number = max(_I64_MIN, min(number, _I64_MAX))
        self._map[self._user_step_bytes] = _USER_STEP.pack(number, now_ns, number)

    def beat(self, now_ns: int, batches: int = 0) -> None:
        """Say that the probe's thread ran: stale while the process runs means the GIL is held in C."""
        self._put(_BEAT_AT, _BEAT.pack(now_ns, batches, now_ns))

    def returned(self, now_ns: int) -> None:
        """Say that the script has ended while other threads may keep the process."""
        self._put(_RETURNED_AT, _U64.pack(now_ns))

    def intervals(self, interval: float | None, stage_limit: float | None, stage: str) -> None:
        """Publish the rank's own limits in seconds: -1 for off, ``None`` for not set."""
        self._intervals_version += 2
        name = stage.encode("utf-8", "replace")[:96]
        packed = _INTERVALS.pack(_packed(interval), _packed(stage_limit), name)
        self._publish(_INTERVALS_AT, packed, _INTERVALS_END, self._intervals_version)

    def groups(self, groups: tuple[GroupSeq, ...]) -> None:
        """Publish the process groups; those past ``MAX_GROUPS`` are left out."""
        self._groups_version += 2
        kept = groups[:MAX_GROUPS]
        packed = b"".join([_COUNT.pack(len(kept)), *map(_pack_group, kept)])
        self._publish(_GROUPS_AT, packed, _GROUPS_END, self._groups_version)

    def raised(self, text: str, now_ns: int, place: Place | None = None) -> None:
        """Report an uncaught exception; ``text`` is its last line, ``place`` where it came from."""
        if place is not None:
            function, file, line = place
            packed = f"{line}\n{function[:120]}\n{file}".encode("utf-8", "replace")
            if len(packed) <= _PLACE.size:
                self._put(_PLACE_AT, _PLACE.pack(packed))
        time_then_text = _RAISED.pack(now_ns, text.encode("utf-8", "replace")[:504])
        # The time last: who sees it finds the text.
        self._put(_RAISED_AT + _U64.size, time_then_text[_U64.size :])
        self._put(_RAISED_AT, time_then_text[: _U64.size])

    def holder(self) -> int:
        """Process that has claimed this slot last, 0 for none."""
        pid: int = _IDENTITY.unpack_from(self._map, self._base)[1]
        return pid

    def hold_wanted(self) -> bool:
        """Whether the agent wants a raising worker to wait while evidence is taken."""
        return bool(_HEADER.unpack_from(self._map, 0)[4])

    def answered(self) -> bool:
        """Whether the agent has said that the raising worker may go on."""
        return bool(_ANSWER.unpack_from(self._map, self._base + _ANSWER_AT)[0])

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()

    def _put(self, offset: int, packed: bytes) -> None:
        at = self._base + offset
        self._map[at : at + len(packed)] = packed

    def _publish(self, start: int, packed: bytes, end: int, version: int) -> None:
        """Write a record that is too long for one look: its version is odd until it is complete.

        The body is one copy: a thread that loses the GIL here, to a training thread that never gives it back,
        leaves the record as it was or as it is, and both can be read.
        """
        self._put(start, _U64.pack(version - 1))
        self._put(start + _U64.size, packed)
        self._put(end, _U64.pack(version))
        self._put(start, _U64.pack(version))


class PageReader:
    """The agent's (and anybody else's) end of a page. Never blocks, never takes a lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map the page.

        Raises:
            OSError: no such page, or it is not one (``PageError``).
        """
        self._map = _map(path)
        self.slots: int = _HEADER.unpack_from(self._map, 0)[2]
        self._whole: dict[int, bytes] = {}

    def read(self, slot: int) -> SlotView:
        """Read one slot.

        Raises:
            IndexError: the page has no such slot.
        """
        if not 0 <= slot < self.slots:
            raise IndexError(f"no slot {slot} of {self.slots}")
        base = HEADER_SIZE + slot * SLOT_SIZE
        rank, pid, start_ticks = _IDENTITY.unpack_from(self._map, base)
        step, step_ns = self._read_guarded(_STEP, base + _STEP_AT)
        user_step, user_step_ns = self._read_guarded(_USER_STEP, base + _USER_STEP_AT)
        beat_ns, batches = self._read_guarded(_BEAT, base + _BEAT_AT)
        interval, stage_limit, stage = self._read_intervals(base)
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
            user_step=user_step,
            user_step_ns=user_step_ns,
            batches=batches,
            returned_ns=_U64.unpack_from(self._map, base + _RETURNED_AT)[0],
            interval=interval,
            stage_limit=stage_limit,
            stage=stage,
        )

    def _read_guarded(self, form: struct.Struct, at: int) -> tuple[int, int]:
        """Two numbers, the first of which stands again after them."""
        before = b""
        first = second = 0
        for _ in range(_READ_TRIES):
            raw = self._map[at : at + form.size]
            first, second, again = form.unpack(raw)
            if first == again and raw == before:
                break
            before = raw
        return first, second

    def _read_versioned(self, start: int, end: int) -> bytes:
        """What ``SlotWriter._publish`` wrote; empty when it never did.

        While the writer stands in the middle, the record that this reader saw last. One that saw none takes
        what is there: the body, if the writer is between two copies, else a part of the old and the new one.
        """
        raw = b""
        again = 0
        for _ in range(_READ_TRIES):
            version = _U64.unpack_from(self._map, start)[0]
            raw = self._map[start + _U64.size : end]
            again = _U64.unpack_from(self._map, end)[0]
            if version == again == _U64.unpack_from(self._map, start)[0] and version % 2 == 0:
                if version:
                    self._whole[start] = raw
                else:
                    self._whole.pop(start, None)
                return raw if version else b""
        return self._whole.get(start, raw) if again else b""

    def _read_intervals(self, base: int) -> tuple[float | None, float | None, str]:
        raw = self._read_versioned(base + _INTERVALS_AT, base + _INTERVALS_END)
        if not raw:
            return None, None, ""
        interval, stage_limit, name = _INTERVALS.unpack(raw)
        return _unpacked(interval), _unpacked(stage_limit), name.rstrip(b"\0").decode("utf-8", "replace")

    def _read_groups(self, base: int) -> tuple[GroupSeq, ...]:
        raw = self._read_versioned(base + _GROUPS_AT, base + _GROUPS_END)
        if not raw:
            return ()
        count = min(_COUNT.unpack_from(raw)[0], MAX_GROUPS)
        return tuple(_unpack_group(raw, index) for index in range(count))

    @property
    def is_intact(self) -> bool:
        """Whether the header is still that of a page: a stray write of a worker may have hit it."""
        magic, version, slots, slot_size, _hold = _HEADER.unpack_from(self._map, 0)
        return (magic, version, slots, slot_size) == (MAGIC, VERSION, self.slots, SLOT_SIZE)

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


def _packed(seconds: float | None) -> float:
    return math.nan if seconds is None else seconds


def _unpacked(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


def _decode_place(raw: bytes) -> Place | None:
    line, _, rest = raw.rstrip(b"\0").decode("utf-8", "replace").partition("\n")
    function, _, file = rest.partition("\n")
    return (function, file, int(line)) if line.isdecimal() else None


def _pack_group(group: GroupSeq) -> bytes:
    name = group.name.encode("utf-8", "replace")[:48]
    return _GROUP.pack(name, group.size, group.enqueued, group.completed, group.members_hash)


def _unpack_group(raw: bytes, index: int) -> GroupSeq:
    name, size, enqueued, completed, members = _GROUP.unpack_from(raw, _COUNT.size + index * _GROUP.size)
    return GroupSeq(name.rstrip(b"\0").decode("utf-8", "replace"), size, enqueued, completed, members)
