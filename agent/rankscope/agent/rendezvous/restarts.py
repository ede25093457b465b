"""How often the job was restarted, told to each other where nodes meet: the limit is the job's, not a node's.

Each agent counts the restarts that it decided on or followed; who joins late, or came along in a change of
the membership only, knows of fewer. It must not know what a restart is.
"""

from __future__ import annotations

from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]  # re-exported from torch._C

_KEY: Final = "rankscope/restarts"
MOST: Final = 1000
"""Counts above are not told: each is a key that is looked for."""


def tell_restarts(store: Store, round_id: str, count: int) -> None:
    """Tell the nodes of a round; before they wait for each other in it."""
    if 0 < count <= MOST:
        store.set(_key(round_id, count), "1")


def told_restarts(store: Store, round_id: str, *, known: int, most: int) -> int:
    """The largest count that any node has told, ``known`` if that is larger.

    Args:
        store: of the round.
        round_id: of it.
        known: what this node knows of.
        most: as many are allowed; more are not looked for.
    """
    above = range(min(most, MOST), known, -1)
    return next((count for count in above if store.check([_key(round_id, count)])), known)


def _key(round_id: str, count: int) -> str:
    return f"{_KEY}/{round_id}/{count}"
