"""Which global rank each worker of a job has, as ``--rank-assignment`` asks for. Pure.

Four ways: ``torch`` (its own two), ``offset:N`` (this node's workers count from N), ``explicit:4,5,6,7``
(one rank for each local rank) and ``module:function`` (told every group's role, group rank and size, it
answers with every group's ranks). Whatever the way, the ranks of all groups together must be 0 to the number
of workers less one, each once. It knows no store and no torch: ``assignment`` has both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.errors import UsageError
from rankscope.diag.ranks import fold_ranks

FLAG: Final = "--rank-assignment"
ALLOWED: Final = "torch, offset:N, explicit:4,5,6,7 or module:function"


@dataclass(frozen=True, slots=True)
class Group:
    """The workers of one agent.

    Attributes:
        role: torch's role.
        group_rank: the agent's place in the rendezvous.
        size: number of its workers.
    """

    role: str
    group_rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Torch:
    """Ranks as torch's agent gives them."""


@dataclass(frozen=True, slots=True)
class Explicit:
    """Ranks that this node names itself.

    Attributes:
        ranks: by local rank; with ``first`` given, counted from there instead.
    """

    ranks: tuple[int, ...] = ()
    first: int | None = None

    def of(self, size: int) -> tuple[int, ...]:
        """The ranks of ``size`` local workers."""
        return self.ranks if self.first is None else tuple(range(self.first, self.first + size))


@dataclass(frozen=True, slots=True)
class ByFunction:
    """Ranks that a function of the user's gives to all groups.

    Attributes:
        module: where it is imported from.
        name: its dotted name in there.
    """

    module: str
    name: str


Scheme = Torch | Explicit | ByFunction


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one worker stands.

    Attributes:
        rank: global rank.
        role_rank: its place among the workers of its role, by global rank.
        world_size: workers of the job.
        role_world_size: workers of its role.
    """

    rank: int
    role_rank: int
    world_size: int
    role_world_size: int


def parse_scheme(text: str) -> Scheme:
    """Read a value of ``--rank-assignment``.

    Raises:
        UsageError: it is none of the four forms; names the value and what is allowed.
    """
    way, colon, rest = text.strip().partition(":")
    if not colon and way == "torch":
        return Torch()
    if way == "offset" and rest.isdecimal():
        return Explicit(first=int(rest))
    if way == "explicit":
        words = [word.strip() for word in rest.split(",")]
        if all(word.isdecimal() for word in words):
            return Explicit(tuple(int(word) for word in words))
    elif way not in ("offset", "torch") and _is_dotted(way) and _is_dotted(rest):
        return ByFunction(way, rest)
    raise UsageError(f"{FLAG} {text!r}: {ALLOWED} expected")


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def check_size(scheme: Scheme, size: int) -> None:
    """See what one node can see before it meets the others.

    Raises:
        UsageError: it names another number of ranks than it has workers.
    """
    if isinstance(scheme, Explicit) and scheme.first is None and len(scheme.ranks) != size:
        raise UsageError(
            f"{FLAG} explicit:{','.join(map(str, scheme.ranks))} names {_count(len(scheme.ranks), 'rank')} "
            f"for {_count(size, 'worker')} (--nproc-per-node)"
        )


def place(groups: Sequence[Group], ranks: Mapping[int, Sequence[int]]) -> dict[int, tuple[Placed, ...]]:
    """Place every worker of the job.

    Args:
        groups: all agents' workers.
        ranks: by group rank, a global rank for each local rank.

    Returns:
        By group rank, in the order of local ranks.

    Raises:
        UsageError: a group has another number of ranks than workers, a rank is there twice, missing, or out
            of range; names all of them, and the groups.
    """
    complaints = _complaints(groups, ranks)
    if complaints:
        raise UsageError(f"{FLAG}: {'; '.join(complaints)}")
    world_size = sum(group.size for group in groups)
    by_role: dict[str, list[int]] = {}
    for group in groups:
        by_role.setdefault(group.role, []).extend(ranks[group.group_rank])
    role_rank = {rank: place for members in by_role.values() for place, rank in enumerate(sorted(members))}
    return {
        group.group_rank: tuple(
            Placed(rank, role_rank[rank], world_size, len(by_role[group.role]))
            for rank in ranks[group.group_rank]
        )
        for group in groups
    }


def _complaints(groups: Sequence[Group], ranks: Mapping[int, Sequence[int]]) -> list[str]:
    found = [
        f"group rank {group.group_rank} has {_count(group.size, 'worker')} and "
        f"{_count(len(ranks.get(group.group_rank, ())), 'rank')}"
        for group in groups
        if len(ranks.get(group.group_rank, ())) != group.size
    ]
    world_size = sum(group.size for group in groups)
    owners: dict[int, list[int]] = {}
    for group in groups:
        for rank in ranks.get(group.group_rank, ()):
            owners.setdefault(rank, []).append(group.group_rank)
    counts = Counter({rank: len(of) for rank, of in owners.items()})
    twice = [rank for rank, count in sorted(counts.items()) if count > 1]
    if twice:
        where = sorted({owner for rank in twice for owner in owners[rank]})
        found.append(f"{_named(twice)} given more than once (group ranks {fold_ranks(where)})")
    missing = [rank for rank in range(world_size) if rank not in owners]
    if missing:
        found.append(f"{_named(missing)} given to nobody")
    outside = [rank for rank in sorted(owners) if not 0 <= rank < world_size]
    if outside:
        found.append(
            f"{_named(outside)} outside of 0-{world_size - 1} ({_count(world_size, 'worker')} in all)"
        )
    return found


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    return f"ranks {fold_ranks(ranks) if min(ranks) >= 0 else ','.join(map(str, ranks))} are"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
