"""Folds identical stacks over all ranks: one ``StackGroup`` a distinct stack, rarest first.

The deciding thread of each rank (its main thread unless told otherwise) is compared; what else runs
in the processes (pin-memory, autograd, heartbeat threads, loader workers) is folded apart, kept in the record
and out of the comparison. It does not know which threads those are: the caller says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from rankscope.diag.merge.normalise import Identity, identity, show_frame
from rankscope.diag.merge.own_frames import is_own_thread
from rankscope.diag.model import ChildSnapshot, Frame, RankSnapshot, StackGroup, ThreadStack
from rankscope.diag.ranks import fold_ranks, rank_runs

Decide = Callable[[RankSnapshot], ThreadStack | None]
_Member = tuple[int, int]  # rank, thread id
_SHORT: Final = 32
"""Characters of a set of ranks that is met again and again over many jobs."""


def main_thread(process: RankSnapshot | ChildSnapshot) -> ThreadStack | None:
    """The process's main thread, ``None`` when no stack of it is known."""
    for thread in process.threads:
        if thread.is_main:
            return thread
    return None


def fold_stacks(snapshots: Iterable[RankSnapshot], *, decide: Decide = main_thread) -> tuple[StackGroup, ...]:
    """Fold one thread a rank.

    Args:
        snapshots: the ranks, in any order.
        decide: which thread of a rank is compared; ``None`` leaves the rank out.

    Returns:
        Groups, rarest first, then by the lowest rank; stacks leaf first.
    """
    folding = _Folding()
    for rank in snapshots:
        thread = decide(rank)
        if thread is not None:
            folding.members(thread.frames).append((rank.rank, thread.thread_id))
    return folding.groups()


def fold_others(snapshots: Iterable[RankSnapshot], *, decide: Decide = main_thread) -> tuple[StackGroup, ...]:
    """Fold all threads that ``fold_stacks`` leaves out, those of child processes included, ours not."""
    folding = _Folding()
    known = folding.known
    for snapshot in snapshots:
        rank, deciding = snapshot.rank, decide(snapshot)
        for thread in snapshot.threads:
            frames = thread.frames
            if frames and thread is not deciding:
                members = known.get(id(frames)) or folding.members_of_others(frames)
                members.append((rank, thread.thread_id))
        for child in snapshot.children:
            for thread in child.threads:
                if thread.frames:
                    folding.members_of_others(thread.frames).append((rank, thread.thread_id))
    return folding.groups()


def split_stacks(groups: Iterable[StackGroup]) -> tuple[list[StackGroup], list[StackGroup]]:
    """A record's compared stacks, which hold each rank once, and the others.

    A record lists ``fold_stacks`` before ``fold_others``, so the first group with a rank that was there
    already starts the others. One whose ranks cannot be read counts as compared, behind all of these.
    """
    compared: list[StackGroup] = []
    others: list[StackGroup] = []
    damaged: list[StackGroup] = []
    seen: set[int] = set()
    for group in groups:
        runs = runs_of(group)
        if runs is None:
            damaged.append(group)
        elif others or sum(map(len, runs)) != group.count or not seen.isdisjoint(chain.from_iterable(runs)):
            others.append(group)
        else:
            compared.append(group)
            seen.update(*runs)
    return compared + damaged, others


def runs_of(group: StackGroup) -> tuple[range, ...] | None:
    """The ranks of a group, ``None`` when the stored text is no set of ranks."""
    return _short_runs(group.ranks) if len(group.ranks) <= _SHORT else _runs(group.ranks)


def _runs(text: str) -> tuple[range, ...] | None:
    try:
        return rank_runs(text)
    except ValueError:
        return None


_short_runs = functools.lru_cache(maxsize=4096)(_runs)


class _Folded:
    """One distinct stack: how it is shown, and who has it."""

    __slots__ = ("members", "shown")

    def __init__(self, shown: tuple[str, ...]) -> None:
        self.shown = shown
        self.members: list[_Member] = []

    def order(self) -> tuple[int, _Member, tuple[str, ...]]:
        """Rarest first, then by the lowest rank."""
        return len(self.members), self.members[0], self.shown


class _Folding:
    """Stacks seen so far.

    Equal stacks are mostly the same object, or equal frame by frame: both are looked up before anything is
    normalised, so that a thousand ranks cost a thousand look-ups. Where all ranks differ, most differ in the
    leaf alone: what called it is looked up, and normalised, as one.

    Attributes:
        known: who has a stack, by the identity of its object.
    """

    def __init__(self) -> None:
        self.known: dict[int, list[_Member]] = {}
        self._by_key: dict[tuple[Identity | None, int], _Folded] = {}
        self._callers: dict[tuple[Frame, ...], tuple[int, tuple[str, ...]]] = {}
        self._newest: dict[int, tuple[tuple[Frame, ...], tuple[int, tuple[str, ...]]]] = {}
        self._numbers: dict[tuple[Identity, ...], int] = {}
        self._alive: list[tuple[Frame, ...]] = []  # an id is unique only while its object lives

    def members(self, frames: tuple[Frame, ...]) -> list[_Member]:
        """Who has a stack, to be added to."""
        members = self.known.get(id(frames))
        if members is None:
            members = self.known[id(frames)] = self._found(frames)
            self._alive.append(frames)
        return members

    def members_of_others(self, frames: tuple[Frame, ...]) -> list[_Member]:
        """Likewise; who has a stack of ours is in no group."""
        if id(frames) not in self.known and is_own_thread(frames):
            self.known[id(frames)] = []
            self._alive.append(frames)
        return self.members(frames)

    def _found(self, frames: tuple[Frame, ...]) -> list[_Member]:
        number, callers = self._called_by(frames[1:])
        leaf = frames[0] if frames else None
        shown = (show_frame(leaf), *callers) if leaf else ()
        key = (identity(leaf) if leaf else None, number)
        folded = self._by_key.get(key)
        if folded is None:
            folded = self._by_key[key] = _Folded(shown)
        elif folded.shown != shown:
            # The most telling spelling wins, whichever rank came first.
            folded.shown = max(folded.shown, shown, key=lambda stack: (sum(map(len, stack)), stack))
        return folded.members

    def _called_by(self, frames: tuple[Frame, ...]) -> tuple[int, tuple[str, ...]]:
        """The number of what called a leaf, and how that is shown.

        Frames that are the same objects are compared in no time, and hashed one by one.
        """
        nearest = id(frames[0]) if frames else 0
        newest = self._newest.get(nearest)
        if newest is not None and newest[0] == frames:
            return newest[1]
        known = self._callers.get(frames)
        if known is None:
            number = self._numbers.setdefault(tuple(map(identity, frames)), len(self._numbers))
            known = self._callers[frames] = number, tuple(map(show_frame, frames))
        self._newest[nearest] = frames, known
        return known

    def groups(self) -> tuple[StackGroup, ...]:
        """All stacks, rarest first."""
        folded = list(self._by_key.values())
        for one in folded:
            one.members.sort()
        folded.sort(key=_Folded.order)
        return tuple([_group(one.members, one.shown) for one in folded])


def _group(members: list[_Member], stack: tuple[str, ...]) -> StackGroup:
    if len(members) == 1:
        ((rank, tid),) = members
        return StackGroup(1, (f"{rank}:{tid}",), str(rank), stack)
    threads = tuple([f"{rank}:{tid}" for rank, tid in members])
    return StackGroup(len(members), threads, fold_ranks([rank for rank, _ in members]), stack)
