"""A fresh store for the workers of every round, whatever rendezvous the nodes meet in.

Wraps any ``RendezvousHandler`` through its public interface. torch 2.13 gives restarted workers the store of
the first round, in which they read the addresses of processes that are dead; ours starts a new store on group
rank 0 each round, tells the others its address through the round's own store, and hands that to the agent.
It must not know how a backend meets, what the agent does with a round, or anything of the workers.

Two kinds of handler share a store with the workers, told apart by asking, never by name or version. One obeys
torch's switch (c10d, etcd-v2): switched off it names an address at which nobody listens, and it returns only
when every node has stopped its workers. The other keeps a store of its own (static): its address is right
until it comes a second time (scripts rely on ``--master-addr`` and ``--master-port`` in the first round), and
its return says nothing about the other nodes. A handler that shares none (etcd) passes through untouched.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

log = logging.getLogger(__name__)

SWITCH: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""``1`` keeps torch's dynamic handler from sharing its store (``dynamic_rendezvous.py`` in torch 2.13)."""
KEY: Final = "rankscope/bootstrap"
"""Key of the round's address, in the store that the inner rendezvous returns."""
JOIN_TIMEOUT: Final = 600.0
"""Seconds a node waits for the address; torch's own default for joining a round."""
CONNECT_TIMEOUT: Final = dt.timedelta(seconds=30)
"""Group rank 0 connects to the server it has just started: at once, or never (a reverse look-up took 5 s)."""
FIRST_PAUSE: Final = 0.02
LAST_PAUSE: Final = 0.5
"""Seconds between two looks at the store: 2,000 waiting nodes ask it 4,000 times a second at most."""


def inner_of(handler: RendezvousHandler) -> RendezvousHandler:
    """The handler that the nodes meet in: the one inside of ours, or what is given."""
    return handler.inner if isinstance(handler, FreshStoreRendezvous) else handler


class FreshStoreRendezvous(RendezvousHandler):
    """Meets where ``inner`` meets, and gives every round's workers a store that nobody used before.

    Args:
        inner: the handler that the nodes meet in; it must not be used beside this one.
        timeout: seconds a node waits for group rank 0 to say where the round's store is.

    Attributes:
        round_id: the same on all nodes of a round and in no other round, ``""`` where a round has none.
    """

    def __init__(self, inner: RendezvousHandler, *, timeout: float = JOIN_TIMEOUT) -> None:
        self._inner = inner
        self._timeout = timeout
        self._rounds: list[_HostedRound] = []  # those this node hosted and whose store may be in use
        self._inner_addresses: set[tuple[str, int]] = set()
        self._last_read = b""
        self.round_id = ""

    @property
    def inner(self) -> RendezvousHandler:
        """The handler that the nodes meet in."""
        return self._inner

    @property
    def use_agent_store(self) -> bool:
        """Whether workers connect to a store of the agent's, as ``inner`` would have it."""
        return self._inner.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        """Join the next round.

        Returns:
            What ``inner`` returns, with the address of a store that is new in this round.

        Raises:
            RendezvousClosedError: the job ended while this node waited for the address.
            RendezvousConnectionError: the round's store is gone, or the new one cannot be reached.
            RendezvousTimeoutError: no address within ``timeout``.
            RendezvousError: whatever ``inner`` raises.
        """
        self.round_id = ""
        if not self._inner.use_agent_store:
            return self._inner.next_rendezvous()
        with _switch.off():
            keeps_own_store = self._inner.use_agent_store
            info = self._inner.next_rendezvous()
        address = info.bootstrap_store_info
        if address is None:
            return info
        try:
            self._drop_unused(nodes_have_stopped=not keeps_own_store)
            fresh = self._address_of_round(info, address, keeps_own_store=keeps_own_store)
        except RuntimeError as error:  # torch's store errors
            message = f"group rank {info.rank} cannot agree on the workers' store at {address.master_addr}"
            raise RendezvousConnectionError(f"{message}: {error}") from error
        return RendezvousInfo(info.store, info.rank, info.world_size, fresh)

    def shutdown(self) -> bool:
        """Close the rendezvous, then the stores of this node; returns whether ``inner`` closed."""
        try:
            return self._inner.shutdown()
        finally:
            self._rounds.clear()

    def get_backend(self) -> str:
        """Name of the backend of ``inner``."""
        return self._inner.get_backend()

    def get_run_id(self) -> str:
        """Run id of ``inner``."""
        return self._inner.get_run_id()

    def is_closed(self) -> bool:
        """Whether the job's rendezvous is closed for good."""
        return self._inner.is_closed()

    def set_closed(self) -> None:
        """Close the job's rendezvous for good."""
        self._inner.set_closed()  # type: ignore[no-untyped-call]  # torch's own

    def num_nodes_waiting(self) -> int:
        """Nodes that arrived after the round was complete."""
        return self._inner.num_nodes_waiting()

    def _address_of_round(
        self, info: RendezvousInfo, inner: RendezvousStoreInfo, *, keeps_own_store: bool
    ) -> RendezvousStoreInfo:
        """The address that group rank 0 decided on: decided here if that is this node, else read."""
        pair = (inner.master_addr, inner.master_port)
        unused = keeps_own_store and pair not in self._inner_addresses
        self._inner_addresses.add(pair)
        if info.rank != 0:
            return self._read(info.store)
        server = None if unused else _start_server(inner.master_addr)
        fresh = inner if server is None else RendezvousStoreInfo(inner.master_addr, server.port)
        self.round_id = round_id = uuid.uuid4().hex
        self._rounds.append(_HostedRound(round_id, info.store, info.world_size - 1, server))
        # A store without rounds in its keys (static) still holds the last address: the id tells them apart.
        published = {"id": round_id, "addr": fresh.master_addr, "port": fresh.master_port}
        info.store.set(KEY, json.dumps(published))
        log.info("workers of round %s meet at %s port %d", round_id, fresh.master_addr, fresh.master_port)
        return fresh

    def _read(self, store: Store) -> RendezvousStoreInfo:
        """Wait for an address that this node has not used yet, and say that it was taken."""
        deadline = time.monotonic() + self._timeout
        pause = FIRST_PAUSE
        while True:
            raw = store.get(KEY) if store.check([KEY]) else self._last_read
            if raw != self._last_read:
                break
            if time.monotonic() >= deadline:
                message = f"group rank 0 named no store for the workers within {self._timeout:g} s"
                raise RendezvousTimeoutError(message)
            if pause == LAST_PAUSE and self._inner.is_closed():
                raise RendezvousClosedError
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)
        self._last_read = raw
        published = json.loads(raw)
        self.round_id = str(published["id"])
        store.add(_taken(published["id"]), 1)
        return RendezvousStoreInfo(published["addr"], published["port"])

    def _drop_unused(self, *, nodes_have_stopped: bool) -> None:
        """End the stores of rounds that no node's workers can be in any more."""
        if nodes_have_stopped:
            self._rounds.clear()
            return
        # A node that took a round's address has stopped its workers of the rounds before.
        for index in reversed(range(len(self._rounds))):
            if self._rounds[index].was_taken_by_all():
                del self._rounds[:index]
                return


@dataclass(frozen=True)
class _HostedRound:
    """A round whose group rank 0 was this node; letting go of ``server`` ends it."""

    id: str
    store: Store
    peers: int
    server: TCPStore | None

    def was_taken_by_all(self) -> bool:
        return self.store.add(_taken(self.id), 0) >= self.peers


def _taken(round_id: str) -> str:
    return f"{KEY}/{round_id}/taken"


def _start_server(host: str) -> TCPStore:
    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=CONNECT_TIMEOUT)


class _SharingSwitch:
    """torch's switch, off for a while; several handlers of one process may hold it off at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: str | None = None

    @contextlib.contextmanager
    def off(self) -> Generator[None, None, None]:
        with self._lock:
            if self._holders == 0:
                self._before = os.environ.get(SWITCH)
            self._holders += 1
            os.environ[SWITCH] = "1"
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._restore()

    def _restore(self) -> None:
        if self._before is None:
            os.environ.pop(SWITCH, None)
        else:
            os.environ[SWITCH] = self._before


_switch = _SharingSwitch()
