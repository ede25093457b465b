"""What the kernel's counters say of the connections between ranks: bytes that do not arrive.

A connection is between two ranks when both have it open. Bytes that the sender has handed over and that are
neither acknowledged nor waiting to be read are on their way; those that wait to be read are the receiver's
business. Timeouts without an answer mean that nothing comes through: a stopped process acknowledges, its
kernel does (measured on Linux 6.18). It blames nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rankscope.diag.model import Connection, JobSnapshot, RankSnapshot

Pair = tuple[int, int]
"""Two ranks, the lower first."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connections of two ranks over some looks.

    Attributes:
        on_their_way: at each look, the most bytes of one connection that had not arrived.
        retries: at each look, the most timeouts in a row of one connection.
    """

    pair: Pair
    on_their_way: tuple[int, ...]
    retries: tuple[int, ...]

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
            tuple(one.get(pair, (0, 0))[0] for one in each),
            tuple(one.get(pair, (0, 0))[1] for one in each),
        )
        for pair in sorted(each[-1])
    }


def _of_look(ranks: Sequence[RankSnapshot]) -> dict[Pair, tuple[int, int]]:
    ends: dict[tuple[str, str, str], list[tuple[int, Connection]]] = {}
    for snapshot in ranks:
        for one in snapshot.connections:
            key = (_network(snapshot, one.local), one.local, one.remote)
            ends.setdefault(key, []).append((snapshot.rank, one))
    found: dict[Pair, tuple[int, int]] = {}
    for (network, local, remote), senders in ends.items():
        receivers = ends.get((network, remote, local), [])
        if len(senders) != 1 or len(receivers) != 1:
            continue  # an address that two hosts have
        (rank, sender), (other, receiver) = senders[0], receivers[0]
        if rank == other:
            continue
        pair = (min(rank, other), max(rank, other))
        size = sender.unacknowledged if receiver.unread == 0 else 0
        before = found.get(pair, (0, 0))
        found[pair] = (max(before[0], size), max(before[1], sender.retries))
    return found


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


def shown_pairs(pairs: Collection[Pair]) -> str:
    """``0-2 and 1-2``, the first few."""
    shown = [f"{one}-{other}" for one, other in sorted(pairs)[:4]]
    rest = len(pairs) - len(shown)
    return " and ".join(shown) + (f" and {rest} more" if rest else "")
