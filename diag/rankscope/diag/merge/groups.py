"""Folds identical stacks over all ranks: one ``StackGroup`` a distinct stack, rarest first.

The deciding thread of each rank (its main thread unless told otherwise) is compared; what else runs
in the processes (pin-memory, autograd, heartbeat threads, loader workers) is folded apart, kept in the record
and out of the comparison. It does not know which threads those are: the caller says so.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

from rankscope.diag.merge.normalise import Identity, identity, show_frame
from rankscope.diag.merge.own_frames import is_own_frame, is_own_thread
from rankscope.diag.model import ChildSnapshot, Frame, RankSnapshot, StackGroup, ThreadStack
from rankscope.diag.ranks import fold_ranks, rank_runs
from rankscope.diag.unhurried import without_collector

Decide = Callable[[RankSnapshot], ThreadStack | None]
_Members = list[Any]
"""Rank, thread id, both as shown; then the next one's. Slices of it cost a tenth of what tuples do."""
_PARTS: Final = 3
_NO_FRAME: Final = Frame("", "", -1)
"""The leaf of a stack without frames."""
_SHORT: Final = 32
"""Characters of a set of ranks that is met again and again over many jobs."""


def main_thread(process: RankSnapshot | ChildSnapshot) -> ThreadStack | None:
    """The process's main thread, ``None`` when no stack of it is known."""
    for thread in process.threads:
        if thread.is_main:
            return thread
    return None


@without_collector()
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
            members, tid = folding.members(thread.frames), thread.thread_id
            members += rank.rank, tid, f"{rank.rank}:{tid}"
    return folding.groups()


@without_collector()
def fold_others(snapshots: Iterable[RankSnapshot], *, decide: Decide = main_thread) -> tuple[StackGroup, ...]:
    """Fold all threads that ``fold_stacks`` leaves out, those of child processes included, ours not."""
    folding = _Folding()
    known = folding.known
    for snapshot in snapshots:
        rank, deciding = snapshot.rank, decide(snapshot)
        for thread in snapshot.threads:
            frames = thread.frames
            if frames and thread is not deciding:
                members = known.get(id(frames))
                if members is None:
                    members = folding.members(frames, but_own=True)
                tid = thread.thread_id
                members += rank, tid, f"{rank}:{tid}"
        for child in snapshot.children:
            for thread in child.threads:
                if thread.frames:
                    members, tid = folding.members(thread.frames, but_own=True), thread.thread_id
                    members += rank, tid, f"{rank}:{tid}"
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


class _Callers:
    """What called a leaf.

    Attributes:
        frames: as they were seen first.
        shown: how they are shown.
        own: whether such a stack is of a thread of ours, by whether its leaf is.
        stacks: numbers of those with these callers, by the identity of the leaf; the same for equal callers.
    """

    __slots__ = ("frames", "own", "shown", "stacks")

    def __init__(self, frames: tuple[Frame, ...], stacks: dict[Identity, int]) -> None:
        self.frames = frames
        self.shown = tuple(map(show_frame, frames))
        self.own: dict[bool, bool] = {}
        self.stacks = stacks


class _Folding:
    """Stacks seen so far.

    Equal stacks are mostly the same object, or equal frame by frame: both are looked up before anything is
    normalised, so that a thousand ranks cost a thousand look-ups. Where all ranks differ, most differ in the
    leaf alone: what called it is looked up, and normalised, as one.

    Attributes:
        known: who has a stack, by the identity of its object.
    """

    def __init__(self) -> None:
        self.known: dict[int, _Members] = {}
        self._alive: list[tuple[Frame, ...]] = []  # an id is unique only while its object lives
        self._leaves: dict[Frame, tuple[Identity, str, bool]] = {}
        self._callers: dict[tuple[Frame, ...], _Callers] = {}
        self._newest: dict[int, _Callers] = {}
        self._stacks: dict[tuple[Identity, ...], dict[Identity, int]] = {}
        self._shown: list[tuple[str, ...]] = []
        self._members: list[_Members] = []

    def members(self, frames: tuple[Frame, ...], *, but_own: bool = False) -> _Members:
        """Who has a stack, to be added to.

        Args:
            frames: the stack.
            but_own: whether who has a stack of a thread of ours is in no group.
        """
        members = self.known.get(id(frames))
        if members is None:
            members = self.known[id(frames)] = self._found(frames, but_own=but_own)
            self._alive.append(frames)
        return members

    def _found(self, frames: tuple[Frame, ...], *, but_own: bool) -> _Members:
        leaf = frames[0] if frames else _NO_FRAME
        known = self._leaves.get(leaf)
        if known is None:
            known = self._leaves[leaf] = identity(leaf), show_frame(leaf), is_own_frame(leaf)
        place, text, leaf_is_own = known
        callers = self._called_by(frames[1:])
        if but_own:
            own = callers.own.get(leaf_is_own)  # all that a leaf adds to that is whose it is
            if own is None:
                own = callers.own[leaf_is_own] = is_own_thread(frames)
            if own:
                return []
        shown = (text, *callers.shown) if frames else ()
        number = callers.stacks.setdefault(place, len(self._shown))
        if number == len(self._shown):
            self._shown.append(shown)
            self._members.append([])
        elif self._shown[number] != shown:
            # The most telling spelling wins, whichever rank came first.
            self._shown[number] = max(self._shown[number], shown, key=lambda one: (sum(map(len, one)), one))
        return self._members[number]

    def _called_by(self, frames: tuple[Frame, ...]) -> _Callers:
        """Frames that are the same objects are compared in no time, and hashed one by one."""
        nearest = id(frames[0]) if frames else 0
        newest = self._newest.get(nearest)
        if newest is not None and newest.frames == frames:
            return newest
        callers = self._callers.get(frames)
        if callers is None:
            stacks = self._stacks.setdefault(tuple(map(identity, frames)), {})
            callers = self._callers[frames] = _Callers(frames, stacks)
        self._newest[nearest] = callers
        return callers

    def groups(self) -> tuple[StackGroup, ...]:
        """All stacks, rarest first, then by the lowest rank."""
        # Threads that all ranks have are had by the same ranks, which are looked at once.
        is_ascending, folded = functools.cache(_is_ascending), functools.cache(fold_ranks)
        for members in self._members:
            if len(members) > _PARTS and not is_ascending(tuple(members[::_PARTS])):
                threads = (members[part::_PARTS] for part in range(_PARTS))
                members[:] = chain.from_iterable(sorted(zip(*threads, strict=True)))
        ordered = [
            (len(members), members[0], members[1], shown, number)
            for number, (members, shown) in enumerate(zip(self._members, self._shown, strict=True))
        ]
        ordered.sort()
        return tuple([_group(self._members[number], shown, folded) for *_, shown, number in ordered])


def _is_ascending(ranks: tuple[int, ...]) -> bool:
    return all(map(operator.lt, ranks, ranks[1:]))


def _group(members: _Members, stack: tuple[str, ...], folded: Callable[[tuple[int, ...]], str]) -> StackGroup:
    if len(members) == _PARTS:
        rank, _, thread = members
        return StackGroup(1, (thread,), str(rank), stack)
    threads = tuple(members[2::_PARTS])
    return StackGroup(len(threads), threads, folded(tuple(members[::_PARTS])), stack)
