"""Who waits for whom by sequence numbers: the progress page's, per process group.

A member waits at k when it has enqueued k and not completed it; a member that has enqueued less has not
entered k, and everybody in k waits for it (collectives are AND-waits). Groups are matched by torch's name and
their members; only ranks that list the group are members. It knows no stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rankscope.diag.model import GroupProgress, RankSnapshot


@dataclass(frozen=True, slots=True)
class OpenCollective:
    """The newest collective of one group that somebody waits in.

    Attributes:
        group: torch's name of the process group.
        seq: its sequence number.
        waiting: members that entered and did not complete it.
        absent: members that have not entered it.
        done: members that completed it.
        complete: whether every member of the group was seen.
    """

    group: str
    seq: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    done: tuple[int, ...]
    complete: bool

    def may_await(self, rank: int) -> bool:
        """Whether it may lack a rank: a member that did not complete it, or one of unknown numbers."""
        if rank in self.done:
            return False
        return not self.complete or rank in self.waiting or rank in self.absent


@dataclass(frozen=True, slots=True)
class Waits:
    """All open collectives, and what follows from them.

    Attributes:
        open: one entry a group that somebody waits in.
        edges: rank to the ranks it waits for.
        known: whether any rank told its sequence numbers at all.
    """

    open: tuple[OpenCollective, ...] = ()
    edges: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    known: bool = False

    def sinks(self) -> tuple[int, ...]:
        """Ranks that are waited for and wait for nobody: where every chain of waits ends."""
        waited = {rank for targets in set(self.edges.values()) for rank in targets}
        return tuple(sorted(rank for rank in waited if not self.edges.get(rank)))

    def cycle(self) -> tuple[int, ...]:
        """Ranks that wait for each other in a circle, in its order; empty when every chain ends."""
        return _cycle(self.edges)

    def ends(self) -> dict[int, tuple[int, ...]]:
        """For each waiting rank the sinks it waits for, through any number of others."""
        sinks = set(self.sinks())
        # Most ranks wait for the same set: its end is looked for once.
        known = {targets: tuple(sorted(self._reach(targets) & sinks)) for targets in set(self.edges.values())}
        return {rank: known[targets] for rank, targets in self.edges.items()}

    def _reach(self, start: frozenset[int]) -> set[int]:
        seen: set[int] = set()
        todo = list(start)
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo.extend(self.edges.get(one, ()))
        return seen


def read_waits(ranks: Iterable[RankSnapshot], *, elsewhere: Collection[int] = ()) -> Waits:
    """Read the waits of one job snapshot.

    Args:
        ranks: the ranks.
        elsewhere: ranks whose stack shows them outside of any wait, and ranks that have ended: an
            asynchronous collective they started does not hold them.
    """
    members: dict[_Key, dict[int, tuple[int, int]]] = {}
    sizes: dict[_Key, int] = {}
    for rank in ranks:
        for group in rank.progress.groups if rank.progress else ():
            members.setdefault(_key(group), {})[rank.rank] = (group.enqueued, group.completed)
            sizes[_key(group)] = max(sizes.get(_key(group), 0), group.size)
    found = [
        one for key in sorted(members) if (one := _open(key[0], members[key], size=sizes[key])) is not None
    ]
    edges: dict[int, frozenset[int]] = {}
    for one in found:
        targets = frozenset(one.absent)
        for rank_id in one.waiting if targets else ():
            if rank_id in elsewhere:
                continue
            edges[rank_id] = edges.get(rank_id, frozenset()) | targets
    return Waits(
        tuple(found), edges, known=any(seq[0] >= 0 for group in members.values() for seq in group.values())
    )


_Key = tuple[str, int]


def _key(group: GroupProgress) -> _Key:
    return group.name, group.members


def advanced(earlier: Iterable[RankSnapshot], latest: Iterable[RankSnapshot]) -> tuple[int, str] | None:
    """Who made progress between two snapshots, and how: a step, or a collective completed."""
    before = {rank.rank: rank for rank in earlier}
    for rank in latest:
        old = before.get(rank.rank)
        if old is None or old.progress is None or rank.progress is None:
            continue
        if (old.pid, old.start_ticks) != (rank.pid, rank.start_ticks):
            continue  # a process of its own: the pair says nothing of it
        if rank.progress.step > old.progress.step:
            return rank.rank, f"optimizer step {old.progress.step} to {rank.progress.step}"
        if rank.progress.batches > old.progress.batches:
            return rank.rank, f"batch {old.progress.batches} to {rank.progress.batches} of its data loaders"
        completed = {_key(group): group.completed for group in old.progress.groups}
        for group in rank.progress.groups:
            before_it = completed.get(_key(group), group.completed)
            if group.completed > before_it:
                return rank.rank, f"collective {before_it} to {group.completed} of group {group.name}"
    return None


def entered(earlier: Iterable[RankSnapshot], latest: Iterable[RankSnapshot]) -> bool:
    """Whether any rank entered a new collective in between: then the two show different waits."""
    before = {rank.rank: rank for rank in earlier}
    for rank in latest:
        old = before.get(rank.rank)
        if old is None or old.progress is None or rank.progress is None:
            continue
        enqueued = {_key(group): group.enqueued for group in old.progress.groups}
        if any(group.enqueued > enqueued.get(_key(group), group.enqueued) for group in rank.progress.groups):
            return True
    return False


def _open(name: str, seqs: Mapping[int, tuple[int, int]], *, size: int) -> OpenCollective | None:
    top = max(enqueued for enqueued, _ in seqs.values())
    waiting = sorted(rank for rank, (enqueued, completed) in seqs.items() if enqueued == top > completed)
    if top < 0 or not waiting:
        return None
    return OpenCollective(
        group=name,
        seq=top,
        waiting=tuple(waiting),
        absent=tuple(sorted(rank for rank, (enqueued, _) in seqs.items() if enqueued < top)),
        done=tuple(sorted(rank for rank, (_, completed) in seqs.items() if completed >= top)),
        complete=len(seqs) >= size,
    )


def _cycle(edges: Mapping[int, frozenset[int]]) -> tuple[int, ...]:
    """Walk from each rank until one comes again that is still on the walk (no recursion)."""
    inner = {targets: sorted(rank for rank in targets if rank in edges) for targets in set(edges.values())}
    finished: set[int] = set()
    for start in sorted(edges):
        if start in finished:
            continue
        walk: dict[int, None] = {start: None}
        todo = [(start, iter(inner[edges[start]]))]
        while todo:
            rank, targets = todo[-1]
            following = next(targets, None)
            if following is None:
                todo.pop()
                del walk[rank]
                finished.add(rank)
            elif following in walk:
                order = list(walk)
                return tuple(order[order.index(following) :])
            elif following not in finished:
                walk[following] = None
                todo.append((following, iter(inner[edges[following]])))
    return ()
