"""Who waits for whom by sequence numbers, per process group: the progress pages' and the flight records'.

A member is blocked at the first collective that it called and that did not end; a member that has called
fewer has not entered that one, and everybody in it waits for it (collectives are AND-waits). NCCL's ranks
run ahead: what they called beyond it says nothing. It knows no stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from rankscope.diag.classify.records import GroupKey, Standing, Told, group_name, read_groups
from rankscope.diag.model import RankSnapshot


@dataclass(frozen=True, slots=True)
class OpenCollective:
    """A collective that somebody is blocked in.

    Attributes:
        key: the group.
        group: the group as a sentence names it.
        seq: its sequence number.
        waiting: members that are blocked in it.
        absent: members that have not entered it.
        done: members that completed it.
        complete: whether every member of the group was seen; sized whether their number is known.
        silent: members that told nothing of the group, where the members are known.
    """

    key: GroupKey
    group: str
    seq: int
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    done: tuple[int, ...]
    complete: bool
    sized: bool = True
    silent: tuple[int, ...] = ()

    def may_await(self, rank: int) -> bool:
        """Whether it may lack a rank: a member that did not complete it, or one of unknown numbers."""
        if rank in self.done:
            return False
        return not self.complete or rank in self.waiting or rank in self.absent


@dataclass(frozen=True, slots=True)
class Waits:
    """All open collectives, and what follows from them.

    Attributes:
        open: what somebody is blocked in, by group and number.
        edges: rank to the ranks it waits for.
        known: whether any rank told its sequence numbers at all.
        guessed: ranks of whose waits only this is known: nobody else who is seen is in them, and their
            members are not told. They wait for ranks that wait for nobody, by elimination.
    """

    open: tuple[OpenCollective, ...] = ()
    edges: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    known: bool = False
    guessed: frozenset[int] = frozenset()

    def sinks(self) -> tuple[int, ...]:
        """Ranks that are waited for and wait for nobody: where every chain of waits ends."""
        waited = {rank for targets in set(self.edges.values()) for rank in targets}
        return tuple(sorted(rank for rank in waited if not self.edges.get(rank)))

    def circle(self) -> frozenset[int]:
        """Ranks that wait for each other, through any number of others; empty when every chain ends.

        Of several circles that of the lowest rank. Each rank in it waits for itself in the end.
        """
        ring = _cycle(self.edges)
        if not ring:
            return frozenset()
        reached = self._reach(self.edges[ring[0]])
        back = set(ring)
        # Most ranks wait for the same set: sets are gone through, not edges.
        sources: dict[frozenset[int], set[int]] = {}
        for rank in reached:
            if rank in self.edges:
                sources.setdefault(self.edges[rank], set()).add(rank)
        grew = True
        while grew:
            found = [targets for targets in sources if targets & back]
            grew = bool(found)
            for targets in found:
                back |= sources.pop(targets)
        return frozenset(back)

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


def read_waits(
    told: Told, *, world_size: int, elsewhere: Collection[int] = (), gone: Collection[int] = ()
) -> Waits:
    """Work out the waits of one job snapshot.

    Args:
        told: where every rank stands in its groups.
        world_size: number of ranks of the job.
        elsewhere: ranks whose stack shows them outside of any wait, and ranks that have ended: an
            asynchronous collective they started does not hold them.
        gone: those of them that have ended. A collective in which nobody else waits is none: their last page
            is from before their end (measured on a starved machine: 40 open, 5 s before they left with 0).
    """
    ended = frozenset(gone)
    found = [
        one for key in sorted(told.groups) for one in _open(key, told) if not ended.issuperset(one.waiting)
    ]
    edges: dict[int, frozenset[int]] = {}
    for one in found:
        targets = frozenset(one.absent)
        for rank_id in one.waiting if targets else ():
            if rank_id in elsewhere:
                continue
            edges[rank_id] = edges.get(rank_id, frozenset()) | targets
    guessed = _guess(found, edges, told, elsewhere=elsewhere, gone=gone, world_size=world_size)
    standings = (one for members in told.groups.values() for one in members.values())
    known = any(one.enqueued >= 0 for one in standings)
    return Waits(tuple(found), {**edges, **guessed}, known, frozenset(guessed))


def _guess(
    found: Iterable[OpenCollective],
    edges: Mapping[int, frozenset[int]],
    told: Told,
    *,
    elsewhere: Collection[int],
    gone: Collection[int],
    world_size: int,
) -> dict[int, frozenset[int]]:
    """Waits in groups whose members nobody told (gloo's records lose them once there are sub-groups).

    Every chain of waits ends at a rank that waits for nobody, or goes round in a circle. Where all ranks are
    known and few wait for nobody, those are where the chains end.
    """
    inside = {rank for one in found for rank in one.waiting if rank not in elsewhere}
    hidden = {
        rank
        for one in found
        if not one.absent and not one.sized
        for rank in one.waiting
        if rank in inside and rank not in edges
    }
    free = told.ranks - inside
    if not hidden or gone or len(told.ranks) < world_size or len(free) >= len(inside):
        return {}
    if free:
        return dict.fromkeys(sorted(hidden), free)
    # Everyone waits: it goes round in a circle. Of two ranks, each waits for the other.
    return {rank: frozenset(inside - {rank}) for rank in sorted(hidden)} if len(inside) == 2 else {}  # noqa: PLR2004


def advanced(earlier: Iterable[RankSnapshot], latest: Iterable[RankSnapshot]) -> tuple[int, str] | None:
    """Who made progress between two snapshots, and how: a step, or a collective completed."""
    for old, rank in _pairs(earlier, latest):
        if old.progress is not None and rank.progress is not None:
            if rank.progress.step > old.progress.step:
                return rank.rank, f"optimizer step {old.progress.step} to {rank.progress.step}"
            if rank.progress.batches > old.progress.batches:
                batches = f"batch {old.progress.batches} to {rank.progress.batches}"
                return rank.rank, f"{batches} of its data loaders"
        for key, before, now in _same_groups(old, rank):
            if now.completed > before.completed:
                return (
                    rank.rank,
                    f"collective {before.completed} to {now.completed} of group {group_name(key)}",
                )
    return None


def entered(earlier: Iterable[RankSnapshot], latest: Iterable[RankSnapshot]) -> bool:
    """Whether any rank entered a new collective in between: then the two show different waits."""
    return any(
        now.enqueued > before.enqueued
        for old, rank in _pairs(earlier, latest)
        for _, before, now in _same_groups(old, rank)
    )


def _pairs(
    earlier: Iterable[RankSnapshot], latest: Iterable[RankSnapshot]
) -> Iterator[tuple[RankSnapshot, RankSnapshot]]:
    before = {rank.rank: rank for rank in earlier}
    for rank in latest:
        old = before.get(rank.rank)
        # A process of its own: the pair says nothing of it.
        if old is not None and (old.pid, old.start_ticks) == (rank.pid, rank.start_ticks):
            yield old, rank


def _same_groups(old: RankSnapshot, new: RankSnapshot) -> Iterator[tuple[GroupKey, Standing, Standing]]:
    """One rank's groups in both snapshots: page with page, record with record."""
    pairs: list[tuple[RankSnapshot, RankSnapshot]] = []
    # In a hang nothing changed: equal numbers are not worked out (16,384 ranks).
    pages = (old.progress.groups if old.progress else (), new.progress.groups if new.progress else ())
    if all(pages) and pages[0] != pages[1]:
        pairs.append((replace(old, record=None), replace(new, record=None)))
    recorded = old.record is not None and new.record is not None and old.record is not new.record
    if recorded and old.record != new.record:
        pairs.append((replace(old, progress=None), replace(new, progress=None)))
    for one, other in pairs:
        before, now = (_standings(snapshot) for snapshot in (one, other))
        for key in before.keys() & now.keys():
            yield key, before[key], now[key]


def _standings(rank: RankSnapshot) -> dict[GroupKey, Standing]:
    told = read_groups((rank,), world_size=0)
    return {key: members[rank.rank] for key, members in told.groups.items() if rank.rank in members}


def _open(key: GroupKey, told: Told) -> list[OpenCollective]:
    """What members of one group are blocked in, by number."""
    members = told.groups[key]
    blocked: dict[int, list[int]] = {}
    for rank, one in members.items():
        if one.blocked_at is not None:
            blocked.setdefault(one.blocked_at, []).append(rank)
    size = max((one.size for one in members.values()), default=0)
    silent = tuple(sorted(told.members.get(key, frozenset()).difference(members))) if blocked else ()
    return [
        OpenCollective(
            key=key,
            group=told.title(key),
            seq=seq,
            waiting=tuple(sorted(blocked[seq])),
            absent=tuple(sorted(rank for rank, one in members.items() if one.enqueued < seq)),
            done=tuple(sorted(rank for rank, one in members.items() if one.completed >= seq)),
            complete=bool(size) and len(members) >= size,
            sized=bool(size),
            silent=silent,
        )
        for seq in sorted(blocked)
    ]


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
