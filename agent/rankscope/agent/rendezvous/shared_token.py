"""The job's token, told to each other where nodes meet: whoever has it can ask each of them.

Where nodes share no folder each has made one. The one that holds is that of nodes which have met before,
else of who tells first. Whoever can write to the job's store can end the job anyhow. It must not know what
the token opens.
"""

from __future__ import annotations

from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]  # re-exported from torch._C

_KEY: Final = "rankscope/token"
_ORDER: Final = ("settled", "made")


def tell_token(store: Store, round_id: str, token: str, *, is_settled: bool) -> None:
    """Tell the nodes of a round; before they wait for each other in it.

    Args:
        store: of the round.
        round_id: of it.
        token: of this node, ``""`` for none.
        is_settled: whether it was agreed on before, or given by the user.
    """
    if token:
        store.compare_set(_key(round_id, _ORDER[0] if is_settled else _ORDER[1]), "", token)


def told_token(store: Store, round_id: str) -> str:
    """The token that holds, ``""`` where no node has one."""
    for name in _ORDER:
        key = _key(round_id, name)
        if store.check([key]):
            return str(store.get(key), "ascii", "replace")
    return ""


def _key(round_id: str, name: str) -> str:
    return f"{_KEY}/{round_id}/{name}"
