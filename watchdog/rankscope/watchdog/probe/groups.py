"""Says where each process group of this process stands: torch's registry joined with its flight recorder.

Members come from the registry (``distributed_c10d._world``), sequence numbers from the recorder. Nothing here
starts a collective, waits, imports torch or keeps a process group alive (that would delay its destruction).
Which group hangs is the detector's to say.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rankscope.watchdog.page import MAX_GROUPS, GroupSeq
from rankscope.watchdog.probe.recorder import Recorder, find_recorders

_NONE_YET: Final = (-1, -1)
_SECOND_RECORD: Final = "/cpu"
"""Added to the name of a group whose default backend is two (``cpu:gloo,cuda:nccl``), for the second one."""


def members_hash(ranks: Iterable[int]) -> int:
    """64-bit hash of a set of global ranks, the same in every process and every Python; never 0.

    It is BLAKE2b, 8 bytes read as little endian, over the sorted ranks as little endian i64.
    """
    members = sorted(ranks)
    packed = struct.pack(f"<{len(members)}q", *members)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of the registry; the weak reference tells it from a later one of the same name."""

    reference: weakref.ref[object]
    backend: str
    size: int
    members_hash: int


class GroupReader:
    """Reads all groups, for one thread. Survives that torch.distributed is ended and begun again."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._recorders: list[Recorder] | None = None
        self._groups: dict[str, _Group] = {}

    def read(self) -> tuple[GroupSeq, ...]:
        """Where each group stands that this process is a member of; empty when that cannot be known.

        Returns:
            Groups in the order of their creation, or with the open collectives first when they are more
            than the page holds.
            A group without any collective yet has -1, -1; one whose numbers cannot be had is left out.
        """
        self._follow_registry()
        if not self._groups:
            return ()
        if self._recorders is None:
            self._recorders = find_recorders()
        found: list[GroupSeq] = []
        for recorder in self._recorders:
            self._add(found, recorder)
        if len(found) > MAX_GROUPS:
            found.sort(key=lambda group: group.enqueued <= group.completed)
        return tuple(found)

    def _add(self, found: list[GroupSeq], recorder: Recorder) -> None:
        taken = {group.name for group in found}
        seqs, is_complete = recorder.read()
        for name, group in self._groups.items():
            seq = seqs.get(name) or (_NONE_YET if is_complete and _is_all_in(recorder, group) else None)
            if seq is not None:
                shown = name + _SECOND_RECORD if name in taken else name
                found.append(GroupSeq(shown, group.size, *seq, group.members_hash))

    def _follow_registry(self) -> None:
        """Take over which groups there are; the recorders forget those that are gone or replaced."""
        module = sys.modules.get("torch.distributed.distributed_c10d")
        world = getattr(module, "_world", None)
        now = self._registered(world) if getattr(world, "default_pg", None) is not None else {}
        for name, group in self._groups.items():
            if now.get(name) is not group:
                for recorder in self._recorders or ():
                    recorder.forget(name)
        self._groups = now

    def _registered(self, world: object) -> dict[str, _Group]:
        """Groups by name, those already known as the same object."""
        # One C call, so that the training thread cannot change the registry under it.
        names: list[tuple[object, object]] = list(getattr(world, "pg_names", {}).items())
        found: dict[str, _Group] = {}
        for group, name in names:
            known = self._groups.get(str(name))
            if known is None or known.reference() is not group:
                known = _describe(world, group)
            if known is not None:
                found[str(name)] = known
        return found


def _describe(world: object, group: object) -> _Group | None:
    """What the registry has on a group; None when this process is no member, or the group just ended."""
    if isinstance(group, int):
        return None  # GroupMember.NON_GROUP_MEMBER, -100
    ranks: Mapping[int, int] | None = getattr(world, "pg_group_ranks", {}).get(group)
    entry: tuple[object, ...] | None = getattr(world, "pg_map", {}).get(group)
    if not ranks or not entry:
        return None
    return _Group(weakref.ref(group), str(entry[0]), len(ranks), members_hash(ranks))


def _is_all_in(recorder: Recorder, group: _Group) -> bool:
    return any(backend in group.backend for backend in recorder.backends)
