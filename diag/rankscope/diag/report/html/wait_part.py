"""The wait-for graph with equal ranks as one node, so that thousands of ranks stay readable. Pure.

Equal are ranks that stand in the same place, wait for the same ranks and are waited for by the same ones.
Where that leaves more nodes than can be drawn (a pipeline in which each waits for the next), the same place
is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from rankscope.diag.model import RankFinding, Role
from rankscope.diag.report.html.document import Waiters
from rankscope.diag.report.html.shown import IndexedSets, shown

MOST_WAITERS: Final = 40
_ORDER: Final[dict[Role, int]] = {"culprit": 0, "victim": 1, "bystander": 2}


def waits_part(ranks: Sequence[RankFinding], sets: IndexedSets) -> tuple[Waiters, ...]:
    """The graph; empty when nobody waits for anybody."""
    classes = _classes(ranks, _exactly(ranks))
    if len(classes) > MOST_WAITERS:
        classes = _classes(ranks, {one.rank: (one.role, one.state, one.position) for one in ranks})
    if len(classes) > MOST_WAITERS:
        classes = _classes(ranks, {one.rank: (one.role, one.state) for one in ranks})
    if not any(one.waits_for for members in classes for one in members):
        return ()
    of_rank = {one.rank: index for index, members in enumerate(classes) for one in members}
    return tuple(_waiters(members, of_rank, sets) for members in classes)


def _exactly(ranks: Iterable[RankFinding]) -> Mapping[int, Hashable]:
    numbers: dict[tuple[int, ...], int] = {}
    for one in ranks:
        numbers.setdefault(one.waits_for, len(numbers))
    awaited: dict[int, list[int]] = defaultdict(list)
    for targets, number in numbers.items():
        for target in targets:
            awaited[target].append(number)
    return {
        one.rank: (one.role, one.state, one.position, numbers[one.waits_for], tuple(awaited[one.rank]))
        for one in ranks
    }


def _classes(ranks: Iterable[RankFinding], keys: Mapping[int, Hashable]) -> list[list[RankFinding]]:
    """Ranks with equal keys, of those that wait or are waited for; culprits first, then the largest."""
    listed = list(ranks)
    targets = {target for waits in {one.waits_for for one in listed} for target in waits}
    found: dict[Hashable, list[RankFinding]] = defaultdict(list)
    for one in listed:
        if one.waits_for or one.rank in targets or one.role == "culprit":
            found[keys[one.rank]].append(one)
    return sorted(
        found.values(), key=lambda members: (_ORDER[members[0].role], -len(members), members[0].rank)
    )


def _waiters(members: Sequence[RankFinding], of_rank: Mapping[int, int], sets: IndexedSets) -> Waiters:
    first = members[0]
    targets = {target for waits in {one.waits_for for one in members} for target in waits}
    places = {one.position for one in members}
    return Waiters(
        ranks=sets.of({one.rank for one in members}),
        role=first.role,
        state=first.state,
        position=shown(first.position) if len(places) == 1 else f"{len(places)} places",
        waits_for=tuple(sorted({of_rank[target] for target in targets if target in of_rank})),
        targets=sets.of(targets) if targets else -1,
        node_count=len({one.node for one in members}),
    )
