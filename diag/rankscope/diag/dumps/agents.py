"""Ranks of workers that torchrun's agent names by their number on its node.

Its log lines name a process and a local rank only. The agent also says whom it stops, so that the size of its
node is known; where its node begins is told by processes of it whose ranks are known, or by nobody else being
there. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rankscope.diag.read import LogFact

_OF_AGENTS: Final = frozenset({"failure", "signalled"})


def agents_placed(
    said: Sequence[tuple[int, LogFact]], ranks: Mapping[int, int], known: Collection[int]
) -> list[tuple[int, LogFact]]:
    """The facts, those of agents with their ranks where these can be told.

    Args:
        said: facts with the index of their input; what names a process with a known rank carries it.
        ranks: known ranks by process number.
        known: all ranks that anything tells of.
    """
    by_input: dict[int, list[LogFact]] = defaultdict(list)
    for at, fact in said:
        if fact.kind in _OF_AGENTS and fact.pid:
            by_input[at].append(fact)
    bases = {at: _base(facts, ranks, known, alone=len(by_input) == 1) for at, facts in by_input.items()}
    taken = set(ranks.values())
    return [(at, _placed(fact, bases.get(at), taken)) for at, fact in said]


def _placed(fact: LogFact, base: int | None, taken: Collection[int]) -> LogFact:
    if fact.kind != "failure" or fact.rank is not None or fact.local_rank is None or base is None:
        return fact
    rank = base + fact.local_rank
    return fact if rank in taken else replace(fact, rank=rank)


def _base(
    facts: Sequence[LogFact], ranks: Mapping[int, int], known: Collection[int], *, alone: bool
) -> int | None:
    """The first rank of an agent's node, ``None`` when it cannot be told."""
    size = max(
        len({fact.pid for fact in facts}),
        *(fact.local_rank + 1 for fact in facts if fact.local_rank is not None),
        0,
    )
    own = {ranks[fact.pid] for fact in facts if fact.pid in ranks}
    bases = {rank // size * size for rank in own} if size else set()
    if len(bases) == 1:
        return bases.pop()
    if bases or not alone or not all(rank < size for rank in known):
        return None
    return 0
