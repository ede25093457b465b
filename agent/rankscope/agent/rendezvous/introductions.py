"""What agents tell each other of themselves where nodes meet: the job's token, and where each can be asked.

Where nodes share no folder each has made a token. The one that holds is that of nodes which have met before,
else of who tells first. Whoever can write to the job's store can end the job anyhow. It must not know what
the token opens, nor what is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from torch.distributed import Store  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.health.offer import Peer

_KEY: Final = "rankscope/introductions"
_TOKENS: Final = ("settled", "made")
MOST_PEERS: Final = 256
"""In larger jobs no addresses are told: each node would read those of all."""
_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True)
class Introduced:
    """What a round's agents have told.

    Attributes:
        token: that holds, ``""`` where no node has one.
        peers: all that can be asked, this agent included; none in a large job.
    """

    token: str = ""
    peers: tuple[Peer, ...] = ()


def introduce(store: Store, round_id: str, token: str, me: Peer, *, is_settled: bool, nodes: int) -> None:
    """Tell the nodes of a round; before they wait for each other in it.

    Args:
        store: of the round.
        round_id: of it.
        token: of this node, ``""`` for none.
        me: this agent; its URL ``""`` where it cannot be asked.
        is_settled: whether the token was agreed on before, or given by the user.
        nodes: how many meet.
    """
    if nodes == 1:
        return
    if token:
        store.compare_set(_key(round_id, _TOKENS[0] if is_settled else _TOKENS[1]), "", token)
    line = msgspec.json.encode(me) + b"\n"
    if me.api and nodes <= MOST_PEERS and len(line) <= _LONGEST:
        appending: Any = store
        appending.append(_key(round_id, "peers"), line)


def introduced(store: Store, round_id: str, *, nodes: int) -> Introduced:
    """What the nodes of a round have told, once all have; nothing where there is one."""
    if nodes == 1:
        return Introduced()
    token = next(filter(None, (_read(store, _key(round_id, name)) for name in _TOKENS)), b"")
    peers = _read(store, _key(round_id, "peers")).splitlines()
    read = (_peer(line) for line in peers[:MOST_PEERS])
    return Introduced(token.decode("ascii", "replace"), tuple(peer for peer in read if peer is not None))


def _peer(line: bytes) -> Peer | None:
    try:
        return msgspec.json.decode(line, type=Peer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _read(store: Store, key: str) -> bytes:
    value: Any = store.get(key) if store.check([key]) else b""
    return bytes(value)


def _key(round_id: str, name: str) -> str:
    return f"{_KEY}/{round_id}/{name}"
