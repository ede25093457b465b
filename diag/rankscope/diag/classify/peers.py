"""Who waits for whom in sends and receives: from local variables of blocked calls, and from flight records.

A send or receive waits for one peer. On gloo no record tells it; py-spy's and pystack's local variables do.
It judges nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.position import Position
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import FlightRecord, RankSnapshot

_NUMBER: Final = re.compile(r"-?\d+")
# Arguments of ``torch.distributed.send`` and ``recv``: a global rank; ``group_src`` counts inside the group.
_PEERS: Final = ("src", "dst")
_GROUP_PEERS: Final = ("group_src", "group_dst")
PEER_CALLS: Final = frozenset({"send", "recv", "send_object_list", "recv_object_list"})
_ANSWERS: Final = {"send": "recv", "recv": "send"}


def peer_of(position: Position, catalogue: Catalogue) -> int | None:
    """The global rank that a blocked send or receive waits for, as its local variables tell."""
    if position.label != "p2p" or position.waiting is None:
        return None
    for variables in position.thread.variables:
        if not 0 <= variables.frame < len(position.thread.frames):
            continue
        frame = position.thread.frames[variables.frame]
        if catalogue.label(frame) != "p2p" or bare_function(frame.function) not in PEER_CALLS:
            continue
        values = dict(variables.values)
        peer = _first_number(values, _PEERS)
        if peer is None and values.get("group") in (None, "None"):
            peer = _first_number(values, _GROUP_PEERS)
        if peer is not None:
            return peer
    return None


def recorded_peers(ranks: Iterable[RankSnapshot]) -> dict[int, frozenset[int]]:
    """For each rank whose record has an open send or receive, the peers that have not come to it.

    A record names a peer's operation as well as a rank's own: a receive whose send was called too is in the
    hands of the communication layer, and no wait for the peer. What was called behind it on other streams
    does not close it; a later one that ended between the same two does, for those are carried out in order.
    """
    records = {rank.rank: rank.record for rank in ranks if rank.record is not None}
    found: dict[int, frozenset[int]] = {}
    for rank, record in records.items():
        peers = frozenset(
            call.peer
            for call, count in _open_calls(record)
            if call.peer != rank
            and call.peer in records
            and not records[call.peer].is_cut
            and not _came(records[call.peer], call, rank, count=count if record.is_whole else 0)
        )
        if peers:
            found[rank] = peers
    return found


class _Call(NamedTuple):
    """A sort of send or receive: its group, operation and peer."""

    group: str
    op: str
    peer: int


def _open_calls(record: FlightRecord) -> list[tuple[_Call, int]]:
    """Open sends and receives, and how many of their sort were called up to the oldest that is open."""
    called: dict[_Call, int] = {}
    opened: dict[_Call, int] = {}
    for entry in record.entries:
        if entry.is_p2p and entry.peer is not None:
            call = _Call(entry.group, entry.op, entry.peer)
            called[call] = called.get(call, 0) + 1
            if entry.is_completed:
                opened.pop(call, None)
            else:
                opened.setdefault(call, called[call])
    return list(opened.items())


def _came(record: FlightRecord, call: _Call, rank: int, *, count: int) -> bool:
    """Whether the peer has called the other half of an operation.

    Args:
        record: the peer's.
        call: what the rank is in.
        rank: the one that is in it.
        count: the how-manieth of its sort that is, 0 when the rank's record lost its beginning. Then an
            open one of the peer's is taken for it.
    """
    half = _Call(call.group, _ANSWERS.get(call.op, ""), rank)
    halves = [entry.is_completed for entry in record.entries if (entry.group, entry.op, entry.peer) == half]
    return len(halves) >= count if count and record.is_whole else not all(halves)


def _first_number(values: Mapping[str, str], names: Iterable[str]) -> int | None:
    for name in names:
        text = values.get(name, "").strip()
        if _NUMBER.fullmatch(text) and int(text) >= 0:
            return int(text)
    return None
