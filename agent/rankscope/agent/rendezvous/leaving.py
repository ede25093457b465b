"""How one node leaves a job that goes on without it: out of the rendezvous, which stays open for the others.

torch has no public way: what is used of its dynamic rendezvous is looked for, and where it is missing the
others find out by themselves (its heartbeats stop). A node whose process holds the store of the rendezvous
stays until the job is over: with it the store would go, and every other node. It must not know why a node
leaves.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

import psutil
from torch.distributed.elastic.rendezvous import RendezvousHandler, dynamic_rendezvous

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.rendezvous.store import inner_of

logger = logging.getLogger(__name__)
LEAVE_TIMEOUT: Final = 10.0
"""Seconds for telling the others: a store that does not answer must not keep the node."""
_POLL: Final = 1.0
_ALONE: Final = 60.0
"""Seconds without any other node in the rendezvous after which nobody needs the store."""


def leave_rendezvous(handler: RendezvousHandler, *, timeout: float = LEAVE_TIMEOUT) -> str:
    """Leave the rendezvous without closing it.

    Args:
        handler: torch's, or ours around it.
        timeout: seconds to tell the others.

    Returns:
        ``""``, or why the others could not be told, a phrase.
    """
    inner: Any = inner_of(handler)
    leave = getattr(dynamic_rendezvous, "_RendezvousExitOp", None)
    parts = ("_op_executor", "_stop_heartbeats", "_get_deadline", "_settings")
    if leave is None or not all(hasattr(inner, part) for part in parts):
        return "this rendezvous has no way to leave"

    def go() -> None:
        inner._stop_heartbeats()  # noqa: SLF001 - torch has no public way
        inner._op_executor.run(leave(), time.monotonic() + timeout)  # noqa: SLF001

    try:
        within(timeout, go, name="rankscope-leave")
    except TookTooLongError:
        return f"the store did not answer within {timeout:g} s"
    except Exception as error:  # torch's private parts; the node leaves whatever they raise
        logger.exception("rankscope could not take this node out of the rendezvous")
        return f"{type(error).__name__}: {error}"
    return ""


def hosts_store(handler: RendezvousHandler) -> bool:
    """Whether the store of the rendezvous lives in this process."""
    inner: Any = inner_of(handler)
    store: Any = getattr(inner, "_store", None)
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    port = getattr(store, "port", None)
    if port is None:
        return False
    try:
        found = psutil.Process(os.getpid()).net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


def wait_until_over(handler: RendezvousHandler, turn: Callable[[], None]) -> None:
    """Wait until the job is over, or nobody else is in it.

    Args:
        handler: the rendezvous that this node has left.
        turn: called once a second.
    """
    inner: Any = inner_of(handler)
    alone_since: float | None = None
    while not handler.is_closed():
        turn()
        state = getattr(getattr(inner, "_state_holder", None), "state", None)
        others = len(getattr(state, "participants", ())) + len(getattr(state, "wait_list", ()))
        if others:
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > _ALONE:
            return
        time.sleep(_POLL)
