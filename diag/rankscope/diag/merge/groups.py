"""Folds identical stacks over all ranks: one ``StackGroup`` a distinct stack, rarest first.

The deciding thread of each rank (its main thread unless told otherwise) is compared; what else runs
in the processes (pin-memory, autograd, heartbeat threads, loader workers) is folded apart, kept in the record
and out of the comparison. It does not know which threads those are: the caller says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rankscope.diag.merge.normalise import Identity, identity, show_frame
from rankscope.diag.model import Frame, RankSnapshot, StackGroup, ThreadStack
from rankscope.diag.ranks import fold_ranks, unfold_ranks

Decide = Callable[[RankSnapshot], ThreadStack | None]
_Member = tuple[int, int]  # rank, thread id


def main_thread(rank: RankSnapshot) -> ThreadStack | None:
    """The rank's main thread, ``None`` when no stack of it is known."""
    for thread in rank.threads:
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
            folding.add(rank.rank, thread)
    return folding.groups()


def fold_others(snapshots: Iterable[RankSnapshot], *, decide: Decide = main_thread) -> tuple[StackGroup, ...]:
    """Fold all threads that ``fold_stacks`` leaves out, those of child processes included."""
    folding = _Folding()
    for rank in snapshots:
        deciding = decide(rank)
        for thread in rank.threads:
            if thread is not deciding and thread.frames:
                folding.add(rank.rank, thread)
        for child in rank.children:
            for thread in child.threads:
                if thread.frames:
                    folding.add(rank.rank, thread)
    return folding.groups()


def deciding_groups(groups: Sequence[StackGroup]) -> tuple[StackGroup, ...]:
    """The head of a record's stacks that holds each rank once: the compared ones.

    A record lists ``fold_stacks`` before ``fold_others``, so the first group with a rank that was there
    already starts the others.
    """
    seen: set[int] = set()
    for index, group in enumerate(groups):
        ranks = set(unfold_ranks(group.ranks))
        if seen & ranks or len(ranks) != group.count:
            return tuple(groups[:index])
        seen |= ranks
    return tuple(groups)


_Key = tuple[Identity | None, int]  # the leaf, and the number of what called it


class _Folding:
    """Stacks seen so far.

    Equal stacks are mostly the same object, or equal frame by frame: both are looked up before anything is
    normalised, so that a thousand ranks cost a thousand look-ups. Where all ranks differ, most differ in the
    leaf alone: what called it is looked up, and normalised, as one.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, list[_Member]] = {}
        self._by_key: dict[_Key, list[_Member]] = {}
        self._shown: dict[_Key, tuple[str, ...]] = {}
        self._callers: dict[tuple[Frame, ...], tuple[int, tuple[str, ...]]] = {}
        self._numbers: dict[tuple[Identity, ...], int] = {}
        self._alive: list[tuple[Frame, ...]] = []  # an id is unique only while its object lives

    def add(self, rank: int, thread: ThreadStack) -> None:
        frames = thread.frames
        members = self._by_id.get(id(frames))
        if members is None:
            members = self._by_id[id(frames)] = self._found(frames)
            self._alive.append(frames)
        members.append((rank, thread.thread_id))

    def _found(self, frames: tuple[Frame, ...]) -> list[_Member]:
        number, callers = self._called_by(frames[1:])
        leaf = frames[0] if frames else None
        key = (identity(leaf) if leaf else None, number)
        shown = (show_frame(leaf), *callers) if leaf else ()
        before = self._shown.setdefault(key, shown)
        if before != shown:
            # The most telling spelling wins, whichever rank came first.
            self._shown[key] = max(before, shown, key=lambda stack: (sum(map(len, stack)), stack))
        return self._by_key.setdefault(key, [])

    def _called_by(self, frames: tuple[Frame, ...]) -> tuple[int, tuple[str, ...]]:
        known = self._callers.get(frames)
        if known is None:
            number = self._numbers.setdefault(tuple(map(identity, frames)), len(self._numbers))
            known = self._callers[frames] = number, tuple(map(show_frame, frames))
        return known

    def groups(self) -> tuple[StackGroup, ...]:
        order = sorted(
            self._by_key.items(), key=lambda item: (len(item[1]), min(item[1]), self._shown[item[0]])
        )
        return tuple(_group(members, self._shown[key]) for key, members in order)


def _group(members: list[_Member], stack: tuple[str, ...]) -> StackGroup:
    if len(members) == 1:
        ((rank, tid),) = members
        return StackGroup(1, (f"{rank}:{tid}",), str(rank), stack)
    members.sort()
    threads = tuple([f"{rank}:{tid}" for rank, tid in members])
    return StackGroup(len(members), threads, fold_ranks([rank for rank, _ in members]), stack)
