"""What the kernel's counters say of the connections between ranks: bytes that do not arrive.

A connection is between two ranks when both have it open. Bytes that the sender has handed over and that are
neither acknowledged nor waiting to be read are on their way; those that wait to be read are the receiver's
business. Timeouts without an answer mean that nothing comes through: a stopped process acknowledges, its
kernel does (measured on Linux 6.18). It blames nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankscope.diag.model import Connection, JobSnapshot, RankSnapshot

Pair = tuple[int, int]
"""Two ranks, the lower first."""
Path = tuple[str, frozenset[str]]
"""What a connection runs between: two addresses, or one, and the host where those are loopback."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connections of two ranks over some looks.

    Attributes:
        on_their_way: at each look, the most bytes of one connection that had not arrived.
        retries: at each look, the most timeouts in a row of one connection.
        paths: what its connections run between, at the last look.
    """

    pair: Pair
    on_their_way: tuple[int, ...]
    retries: tuple[int, ...]
    paths: frozenset[Path] = frozenset()

    @property
    def share(self) -> float:
        """Share of the looks at which something was on its way."""
        return sum(size > 0 for size in self.on_their_way) / len(self.on_their_way)


def read_links(looks: Sequence[JobSnapshot]) -> dict[Pair, Link]:
    """The links between the ranks of a job; those seen at the last look, as they were at each."""
    each = [_of_look(look.ranks) for look in looks]
    if not each:
        return {}
    return {
        pair: Link(
            pair,
            tuple(one.get(pair, _NOTHING).size for one in each),
            tuple(one.get(pair, _NOTHING).retries for one in each),
            each[-1][pair].paths,
        )
        for pair in sorted(each[-1])
    }


class _Seen(NamedTuple):
    """The connections of two ranks at one look, as ``Link`` has them."""

    size: int = 0
    retries: int = 0
    paths: frozenset[Path] = frozenset()


_NOTHING: Final = _Seen()


def _of_look(ranks: Sequence[RankSnapshot]) -> dict[Pair, _Seen]:
    ends: dict[tuple[str, str, str], list[tuple[int, Connection]]] = {}
    for snapshot in ranks:
        for one in snapshot.connections:
            key = (_network(snapshot, one.local), one.local, one.remote)
            ends.setdefault(key, []).append((snapshot.rank, one))
    found: dict[Pair, _Seen] = {}
    for (network, local, remote), senders in ends.items():
        receivers = ends.get((network, remote, local), [])
        if len(senders) != 1 or len(receivers) != 1:
            continue  # an address that two hosts have
        (rank, sender), (other, receiver) = senders[0], receivers[0]
        if rank == other:
            continue
        pair = (min(rank, other), max(rank, other))
        size = sender.unacknowledged if receiver.unread == 0 else 0
        before = found.get(pair, _NOTHING)
        path = (network, frozenset({_host(local), _host(remote)}))
        found[pair] = _Seen(
            max(before.size, size), max(before.retries, sender.retries), before.paths | {path}
        )
    return found


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _network(rank: RankSnapshot, address: str) -> str:
    """A loopback address means something on its own host only."""
    return rank.node if address.startswith(("127.", "::1")) else ""


def shared_by(pairs: Collection[Pair], nodes: Mapping[int, str]) -> tuple[int, ...]:
    """Whose link it is: the ranks in every pair, the ranks of the one node that all pairs touch, or all.

    Args:
        pairs: the pairs in question.
        nodes: host by rank.
    """
    common = set[int].intersection(*(set(pair) for pair in pairs)) if pairs else set[int]()
    if len(common) == 1:
        return tuple(common)
    touched = {rank for pair in pairs for rank in pair}
    of_node = [
        node
        for node in {nodes.get(rank, "") for rank in touched} - {""}
        if all((nodes.get(one) == node) != (nodes.get(other) == node) for one, other in pairs)
    ]
    if len(of_node) == 1:
        return tuple(sorted(rank for rank in touched if nodes.get(rank) == of_node[0]))
    return tuple(sorted(touched))


def cut_off(links: Mapping[Pair, Link], dead: Collection[Pair]) -> int | None:
    """The one rank at a dead link that nothing else reaches either, ``None`` without one, or with several.

    Only what is sent shows that it does not arrive. A link that is idle is as dead as another that runs
    between the same two addresses; of a rank with a single link nothing more is known than of the other end.
    """
    lost = {path for pair in dead for path in links[pair].paths}
    silent: dict[int, list[bool]] = {}
    for pair, link in links.items():
        idle = link.on_their_way[-1] == 0 and lost.issuperset(link.paths)
        for rank in pair:
            silent.setdefault(rank, []).append(pair in dead or idle)
    touched = {rank for pair in dead for rank in pair}
    found = [rank for rank in touched if len(silent[rank]) > 1 and all(silent[rank])]
    return found[0] if len(found) == 1 else None


def shown_pairs(pairs: Collection[Pair]) -> str:
    """``0 and 2, 1 and 2``, the first few; with a dash they would be read as all ranks between."""
    shown = [f"{one} and {other}" for one, other in sorted(pairs)[:4]]
    rest = len(pairs) - len(shown)
    return ", ".join(shown) + (f", and {rest} more pairs" if rest else "")
