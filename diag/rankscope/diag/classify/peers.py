"""Who waits for whom in sends and receives: from local variables of blocked calls, and from flight records.

A send or receive waits for one peer. On gloo no record tells it; py-spy's and pystack's local variables do.
It judges nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.position import Position
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import FlightRecord, RankSnapshot

_NUMBER: Final = re.compile(r"-?\d+")
# Arguments of ``torch.distributed.send`` and ``recv``: a global rank; ``group_src`` counts inside the group.
_PEERS: Final = ("src", "dst")
_GROUP_PEERS: Final = ("group_src", "group_dst")
_CALLS: Final = frozenset({"send", "recv", "send_object_list", "recv_object_list"})
_ANSWERS: Final = {"send": "recv", "recv": "send"}


def peer_of(position: Position, catalogue: Catalogue) -> int | None:
    """The global rank that a blocked send or receive waits for, as its local variables tell."""
    if position.label != "p2p" or position.waiting is None:
        return None
    for variables in position.thread.variables:
        if not 0 <= variables.frame < len(position.thread.frames):
            continue
        frame = position.thread.frames[variables.frame]
        if catalogue.label(frame) != "p2p" or bare_function(frame.function) not in _CALLS:
            continue
        values = dict(variables.values)
        peer = _first_number(values, _PEERS)
        if peer is None and values.get("group") in (None, "None"):
            peer = _first_number(values, _GROUP_PEERS)
        if peer is not None:
            return peer
    return None


def recorded_peers(ranks: Iterable[RankSnapshot]) -> dict[int, frozenset[int]]:
    """For each rank whose record ends in an open send or receive, the peers that have not come to it.

    A record names a peer's operation as well as a rank's own: a receive whose send was called too is in the
    hands of the communication layer, and no wait for the peer.
    """
    records = {rank.rank: rank.record for rank in ranks if rank.record is not None}
    found: dict[int, frozenset[int]] = {}
    for rank, record in records.items():
        peers = frozenset(
            peer
            for peer, op in _open_peers(record)
            if peer != rank and peer in records and not _came(records[peer], rank, op)
        )
        if peers:
            found[rank] = peers
    return found


def _open_peers(record: FlightRecord) -> set[tuple[int, str]]:
    """Peer and call of the open sends and receives at the end of a record."""
    found: set[tuple[int, str]] = set()
    for entry in reversed(record.entries):
        if not entry.is_p2p or entry.is_completed:
            break
        if entry.peer is not None:
            found.add((entry.peer, entry.op))
    return found


def _came(record: FlightRecord, rank: int, op: str) -> bool:
    """Whether the peer has called the other half of the operation, and waits in it as well."""
    return any(
        entry.is_p2p and not entry.is_completed and entry.peer == rank and entry.op == _ANSWERS.get(op)
        for entry in record.entries
    )


def _first_number(values: Mapping[str, str], names: Iterable[str]) -> int | None:
    for name in names:
        text = values.get(name, "").strip()
        if _NUMBER.fullmatch(text) and int(text) >= 0:
            return int(text)
    return None
