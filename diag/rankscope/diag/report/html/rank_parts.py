"""The ranks of a page: a column for the grid, and rows of ranks that are alike for the table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, get_args

from rankscope.diag.model import JobSnapshot, Progress, RankFinding, RankState, Role
from rankscope.diag.report.html.document import RankRow, Ranks, Reason
from rankscope.diag.report.html.shown import Indexed, IndexedSets, shown

STATES: Final[tuple[RankState, ...]] = get_args(RankState)
ROLES: Final[tuple[Role, ...]] = get_args(Role)
MOST_SINGLE: Final = 64
"""Ranks up to which each has a row of its own."""
MOST_ROWS: Final = 300
MOST_NODES: Final = 4
"""Nodes that a row names."""
_ODD_FIRST: Final[Mapping[RankState, int]] = {
    "unobserved": 1,
    "exited": 1,
    "hung": 1,
    "suspected": 1,
    "slow": 1,
}


def progress_by_rank(look: JobSnapshot | None) -> dict[int, Progress]:
    """What the ranks' probes said in a look."""
    return {one.rank: one.progress for one in look.ranks if one.progress is not None} if look else {}


def step_of(progress: Progress | None) -> int | None:
    """The script's own number of the last step, else the optimizer steps seen; ``None`` when not known."""
    if progress is None:
        return None
    return progress.user_step if progress.user_step is not None else progress.step


def idle_of(progress: Progress | None) -> float | None:
    """Seconds since the last step, ``None`` when not known."""
    seconds = progress.seconds_since_step if progress is not None else None
    return round(seconds, 1) if seconds is not None else None


def ranks_part(ranks: Sequence[RankFinding], progress: Mapping[int, Progress]) -> Ranks:
    """All ranks as columns."""
    nodes, positions, reasons = Indexed(), Indexed(), Indexed()
    return Ranks(
        rank=tuple(one.rank for one in ranks),
        node=tuple(nodes.of(one.node) for one in ranks),
        pid=tuple(one.pid for one in ranks),
        state=tuple(STATES.index(one.state) for one in ranks),
        role=tuple(ROLES.index(one.role) for one in ranks),
        step=tuple(step_of(progress.get(one.rank)) for one in ranks),
        idle=tuple(idle_of(progress.get(one.rank)) for one in ranks),
        position=tuple(positions.of(one.position) for one in ranks),
        reason=tuple(reasons.of(one.reason) if one.reason else -1 for one in ranks),
        nodes=nodes.values,
        states=STATES,
        roles=ROLES,
        positions=positions.values,
        reasons=reasons.values,
    )


def rows_part(
    ranks: Sequence[RankFinding], progress: Mapping[int, Progress], sets: IndexedSets
) -> tuple[tuple[RankRow, ...], int]:
    """The rows, culprits' nodes first, and how many ranks have none.

    Few ranks have a row each; of many, those of a node that are alike share one; of very many, those of all
    nodes.
    """

    def alike(one: RankFinding) -> tuple[Hashable, ...]:
        return one.state, one.role, one.rank_class, one.position, one.reason

    keys: tuple[Callable[[RankFinding], Hashable], ...] = (
        lambda one: one.rank,
        lambda one: (one.node, *alike(one)),
        alike,
    )
    groups = _grouped(ranks, keys[0 if len(ranks) <= MOST_SINGLE else 1])
    if len(groups) > MOST_ROWS:
        groups = _grouped(ranks, keys[2])
    kept = _in_order(groups)[:MOST_ROWS]
    shown_ranks = sum(map(len, kept))
    return tuple(_row(members, progress, sets) for members in kept), len(ranks) - shown_ranks


def _grouped(ranks: Iterable[RankFinding], key: Callable[[RankFinding], Hashable]) -> list[list[RankFinding]]:
    found: dict[Hashable, list[RankFinding]] = defaultdict(list)
    for one in ranks:
        found[key(one)].append(one)
    return list(found.values())


def _in_order(groups: Iterable[list[RankFinding]]) -> list[list[RankFinding]]:
    """By node, nodes with a culprit first; in a node culprits first, then what is odd, then by rank."""
    listed = list(groups)
    guilty = {one.node for members in listed for one in members if one.role == "culprit"}

    def order(members: Sequence[RankFinding]) -> tuple[object, ...]:
        first = members[0]
        odd = 0 if first.role == "culprit" else 2 - _ODD_FIRST.get(first.state, 0)
        return first.node not in guilty, first.node, odd, first.rank

    return sorted(listed, key=order)


def _row(members: Sequence[RankFinding], progress: Mapping[int, Progress], sets: IndexedSets) -> RankRow:
    first = members[0]
    nodes = dict.fromkeys(one.node for one in members)
    steps = [step for one in members if (step := step_of(progress.get(one.rank))) is not None]
    idle = [seconds for one in members if (seconds := idle_of(progress.get(one.rank))) is not None]
    return RankRow(
        ranks=sets.of({one.rank for one in members}),
        nodes=tuple(shown(node, 200) for node in list(nodes)[:MOST_NODES]),
        node_count=len(nodes),
        state=first.state,
        role=first.role,
        rank_class=first.rank_class,
        position=shown(first.position),
        steps=(min(steps), max(steps)) if steps else None,
        idle=(min(idle), max(idle)) if idle else None,
        reason=shown(first.reason or ""),
    )


def reasons_part(
    reasons: Iterable[tuple[int, str]], sets: IndexedSets, *, most: int = 100
) -> tuple[Reason, ...]:
    """What was missing, once for all ranks of which it was; the rarest reasons are summed up."""
    found: dict[str, set[int]] = defaultdict(set)
    for rank, reason in reasons:
        found[reason].add(rank)
    listed = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    parts = [Reason(sets.of(ranks), shown(reason)) for reason, ranks in listed[:most]]
    rest = listed[most:]
    if rest:
        others = set[int]().union(*(ranks for _, ranks in rest))
        parts.append(Reason(sets.of(others), f"{len(rest)} further reasons; `diag analyze --json` has them"))
    return tuple(parts)
