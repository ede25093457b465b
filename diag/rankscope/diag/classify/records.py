"""What the ranks tell of their process groups: numbers from progress pages and flight records, matched.

A group is torch's name and its members; ``pg_id`` is local to a rank and never used. Where the page has a
group and is fresh, it is believed; the record fills in what the page lacks. NCCL's status, which the page has
its numbers from, counts sends and receives of a group by their own numbers in the same place: there only the
entries of a record count. It says who stands at which number and judges nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankscope.diag.classify.activity import beat_is_stale
from rankscope.diag.model import Collective, FlightRecord, GroupProgress, RankSnapshot, RecordedGroup

GroupKey = tuple[str, int]
"""Torch's name of a group and the hash of its members, 0 when they are unknown."""

_DEFAULT_GROUP: Final = "default_pg"  # torch's description of the group that holds every rank
_RACE: Final = 16  # so far behind the newest number a call may be recorded, when several threads call


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank in one group.

    Attributes:
        size: number of members, 0 when unknown.
        enqueued: last collective it called, completed the last that ended; -1 for none.
    """

    size: int
    enqueued: int
    completed: int

    @property
    def blocked_at(self) -> int | None:
        """The collective it is inside of, the first that did not end; ``None`` when it is in none."""
        if self.enqueued <= self.completed:
            return None
        # Torch counts from 1; -1 is "none ended yet".
        return 1 if self.completed < 0 < self.enqueued else self.completed + 1


@dataclass(frozen=True, slots=True)
class Told:
    """What all ranks told of their groups.

    Attributes:
        groups: where each member stands, by group. A member that told of none of its collectives is at -1.
        entries: the recorded collectives of each rank, by group and number, of the newest group of that name.
        ranks: ranks that told where they stand; not those whose record was cut off before it did.
        descriptions: what the program calls a group (``DATA_PARALLEL_GROUP``), where a record tells it.
        members: every member of a group, where a record tells them.
    """

    groups: Mapping[GroupKey, Mapping[int, Standing]] = field(
        default_factory=dict[GroupKey, Mapping[int, Standing]]
    )
    entries: Mapping[GroupKey, Mapping[int, Mapping[int, Collective]]] = field(
        default_factory=dict[GroupKey, Mapping[int, Mapping[int, Collective]]]
    )
    ranks: frozenset[int] = frozenset()
    descriptions: Mapping[GroupKey, str] = field(default_factory=dict[GroupKey, str])
    members: Mapping[GroupKey, frozenset[int]] = field(default_factory=dict[GroupKey, frozenset[int]])

    def title(self, key: GroupKey) -> str:
        """The group as a sentence names it."""
        return _title(key[0], self.descriptions.get(key, ""))


def members_hash(ranks: Iterable[int]) -> int:
    """The hash of a set of global ranks that progress pages carry (``probe/groups.py`` writes the same)."""
    members = sorted(ranks)
    packed = struct.pack(f"<{len(members)}q", *members)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") or 1


def read_groups(ranks: Iterable[RankSnapshot], *, world_size: int) -> Told:
    """Match the groups of all ranks.

    Args:
        ranks: the ranks.
        world_size: number of ranks of the job; the default group has as many members.
    """
    ranks = tuple(ranks)
    names = _Names(ranks)
    groups: dict[GroupKey, dict[int, Standing]] = {}
    entries: dict[GroupKey, dict[int, Mapping[int, Collective]]] = {}
    lost: set[tuple[GroupKey, int]] = set()
    descriptions: dict[GroupKey, str] = {}
    for rank in ranks:
        recorded = _recorded(rank.record) if rank.record is not None else {}
        uncounted: set[GroupKey] = set()
        for name, one in recorded.items():
            key = names.key(name, one.members, rank.rank)
            if one.description:
                descriptions[key] = one.description
            if one.counts_peers:
                uncounted.add(key)
            if one.is_lost:
                lost.add((key, rank.rank))
                continue
            entries.setdefault(key, {})[rank.rank] = one.entries
            groups.setdefault(key, {})[rank.rank] = one.standing(world_size)
        for group in _page(rank):
            key = names.key(group.name, group.members, rank.rank)
            if key in uncounted:
                continue
            on_page = Standing(group.size, group.enqueued, group.completed)
            known = groups.setdefault(key, {}).get(rank.rank)
            if known is None or not beat_is_stale(rank):
                groups[key][rank.rank] = on_page
    _add_members_that_called_nothing(groups, ranks, names, world_size, lost=lost)
    placed = {rank for members in groups.values() for rank in members} - {rank for _, rank in lost}
    told = frozenset(
        rank.rank
        for rank in ranks
        if _page(rank) or (rank.record is not None and (not rank.record.is_cut or rank.rank in placed))
    )
    members = {key: everyone for key in groups if (everyone := names.members(key, world_size))}
    return Told(_sized(groups, everyone_told=len(told) >= world_size), entries, told, descriptions, members)


def last_call(record: FlightRecord | None) -> Collective | None:
    """The newest operation of a record."""
    return record.entries[-1] if record is not None and record.entries else None


def open_call(record: FlightRecord | None) -> Collective | None:
    """The oldest operation of a record that did not end, of those after the last that did.

    Where that last one ended behind it in another group (several streams, several threads), the oldest
    that is open in its own.
    """
    if record is None:
        return None
    newest: Collective | None = None
    other: Collective | None = None
    ended: set[tuple[str, int | None]] = set()  # groups, and peers in them, in which a later one has ended
    left = {group.name for group in record.groups if group.name}
    for entry in reversed(record.entries):
        if entry.is_completed:
            if newest is not None:
                break
            ended.add((entry.group, entry.peer))
            if not entry.is_p2p:
                left.discard(entry.group)
            if not left:
                break
        elif not ended:
            newest = entry
        elif (entry.group, entry.peer) not in ended:
            other = entry
    return newest or other


def recorded_title(record: FlightRecord | None, name: str) -> str:
    """A group of one record as a sentence names it."""
    groups = record.groups if record is not None else ()
    return _title(name, next((_told_description(one) for one in groups if one.name == name), ""))


def _title(name: str, description: str) -> str:
    """By its description, and by its name: many groups share a description."""
    return f"{description} ({name or '?'})" if description else name or "?"


def _told_description(group: RecordedGroup) -> str:
    """What tells it from others: not that of the group of all ranks, nor one that repeats the name."""
    return "" if group.description in (_DEFAULT_GROUP, group.name) else group.description


def group_name(key: GroupKey) -> str:
    """Torch's name of the group."""
    return key[0] or "?"


@dataclass(slots=True)
class _Recorded:
    """One group in one rank's record: the entries of its newest instance, and what the status says.

    ``counts_peers``: sends and receives move the numbers of the status as well. ``is_lost``: collectives of
    it may have been called, and none is in the record any more.
    """

    status: RecordedGroup | None = None
    entries: dict[int, Collective] = field(default_factory=dict[int, Collective])
    newest: int = -1
    counts_peers: bool = False
    is_lost: bool = False

    @property
    def members(self) -> tuple[int, ...]:
        return self.status.members if self.status else ()

    @property
    def description(self) -> str:
        return _told_description(self.status) if self.status else ""

    def add(self, entry: Collective) -> None:
        if entry.seq < self.newest:
            if entry.seq in self.entries or self.newest - entry.seq > _RACE:
                self.entries = {}  # a group of the same name, made anew, counts from the start
                self.newest = entry.seq
        else:
            self.newest = entry.seq
        self.entries[entry.seq] = entry

    def standing(self, world_size: int) -> Standing:
        status = self.status
        is_default = status is not None and status.description == _DEFAULT_GROUP
        size = len(self.members) or (world_size if is_default else 0)
        newest = self.newest
        ended = max([seq for seq, entry in self.entries.items() if entry.is_completed], default=-1)
        if status is None or status.enqueued < 0 or self.counts_peers:
            # Without a status of its own, what is older than the first open entry is taken for done.
            opened = [seq for seq in self.entries if seq > ended]
            return Standing(size, newest, max(ended, min(opened, default=ended + 1) - 1))
        # ``last_enqueued`` of NCCL rises when the call returns: one entry more is inside of the call.
        enqueued = max(status.enqueued, newest if newest == status.enqueued + 1 else -1)
        return Standing(size, enqueued, min(enqueued, max(status.completed, min(ended, enqueued))))


def _recorded(record: FlightRecord) -> dict[str, _Recorded]:
    found: dict[str, _Recorded] = {group.name: _Recorded(group) for group in record.groups if group.name}
    for entry in record.entries:
        if not entry.group:
            continue
        one = found.get(entry.group)
        if one is None:
            one = found[entry.group] = _Recorded()
        if not entry.is_p2p:
            one.add(entry)
        elif entry.is_started is not None:
            one.counts_peers = True
    tells_all = _record_is_complete(record)
    called = {entry.group for entry in record.entries}
    for name, one in found.items():
        # A line of a log gives both numbers of a group, and -1 is none there: nothing of it was called.
        of_line = record.is_of_log and name not in called
        counted = one.status is not None and (one.status.enqueued >= 0 or of_line)
        known = record.is_whole if one.counts_peers else counted or tells_all
        one.is_lost = not (counted and not one.counts_peers if record.is_cut else one.entries or known)
    return found


def _page(rank: RankSnapshot) -> tuple[GroupProgress, ...]:
    return rank.progress.groups if rank.progress else ()


class _Names:
    """Names of groups to their members, as far as any rank knows them."""

    def __init__(self, ranks: Sequence[RankSnapshot]) -> None:
        self._known: dict[str, dict[int, frozenset[int] | None]] = {}
        self._hashes: dict[int, int] = {}  # by object: many ranks share one tuple, which the snapshots hold
        self.default: set[str] = set()
        for rank in ranks:
            for group in _page(rank):
                if group.members:
                    self._known.setdefault(group.name, {}).setdefault(group.members, None)
            for one in rank.record.groups if rank.record else ():
                if one.members:
                    of_name = self._known.setdefault(one.name, {})
                    hashed = self._hash(one.members)
                    if of_name.get(hashed) is None:
                        of_name[hashed] = frozenset(one.members)
                if one.description == _DEFAULT_GROUP and one.name:
                    self.default.add(one.name)

    def key(self, name: str, members: int | tuple[int, ...], rank: int) -> GroupKey:
        """The group a rank means: what it does not know of the members, another rank may."""
        if members:
            return name, members if isinstance(members, int) else self._hash(members)
        fitting = [
            hashed for hashed, ranks in self._known.get(name, {}).items() if ranks is None or rank in ranks
        ]
        return name, fitting[0] if len(fitting) == 1 else 0

    def _hash(self, members: tuple[int, ...]) -> int:
        known = self._hashes.get(id(members))
        if known is None:
            known = self._hashes[id(members)] = members_hash(members)
        return known

    def members(self, key: GroupKey, world_size: int) -> frozenset[int] | None:
        """The members, ``None`` when unknown."""
        known = self._known.get(key[0], {}).get(key[1])
        if known is None and key[0] in self.default and key[1] == 0:
            return frozenset(range(world_size))
        return known


def _add_members_that_called_nothing(
    groups: dict[GroupKey, dict[int, Standing]],
    ranks: Sequence[RankSnapshot],
    names: _Names,
    world_size: int,
    *,
    lost: Container[tuple[GroupKey, int]],
) -> None:
    """A member whose record does not name the group has called nothing of it.

    Unless its record lost its beginning and its status does not tell: then its call is unknown, not missing.
    """
    silent = {rank.rank for rank in ranks if _record_is_complete(rank.record) and not _page(rank)}
    for key, members in groups.items():
        expected = names.members(key, world_size) or frozenset()
        for rank in sorted(expected.difference(members) & silent):  # few groups are as large as the job
            if (key, rank) not in lost:
                members[rank] = Standing(len(expected), -1, -1)


def _record_is_complete(record: FlightRecord | None) -> bool:
    """Whether the record tells every group of which a collective was called.

    A status without a name is one whose entries are all lost: it may be any group's.
    """
    if record is None or record.is_whole:
        return record is not None
    if record.is_of_log:
        return False
    counted = [group.name for group in record.groups if group.enqueued >= 0]
    return bool(counted) and all(counted)


def _sized(
    groups: Mapping[GroupKey, Mapping[int, Standing]], *, everyone_told: bool
) -> dict[GroupKey, dict[int, Standing]]:
    """Sizes that nobody wrote down: who ended a collective was in it with every other member."""
    sized: dict[GroupKey, dict[int, Standing]] = {}
    for key, members in groups.items():
        size = max((one.size for one in members.values()), default=0)
        if not size and everyone_told and max(one.completed for one in members.values()) > 0:
            size = len(members)
        sized[key] = {
            rank: one if one.size == size else Standing(size, one.enqueued, one.completed)
            for rank, one in sorted(members.items())
        }
    return sized
