"""The agent's own connection to the job's store, whose calls never hold anybody up.

torch's time-outs do not hold against a server that is frozen (measured: 12 s and more with 3 s asked), and a
client that waits blocks every other call on it. So calls are made on a connection of its own in a thread of
its own; one that is overdue is left behind with both, and the next call gets new ones. Each call is a few
messages, counted here. It must not know what keys mean.
"""

from __future__ import annotations

import datetime as dt
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from rankscope.agent.nodes.events import Add, Answered, CompareSet, Delete, Failed, Fetch, Put, StoreCall

logger = logging.getLogger(__name__)
CALL_TIMEOUT: Final = 5.0
"""Seconds for one call, connecting included: a look-up of a name may take as long."""
MOST_LEFT_BEHIND: Final = 3
"""Threads that may hang in calls at once; no further call is made until one of them ends."""
_NOT_THERE: Final = b"rankscope: not there"


class Store(Protocol):
    """What is used of a store of torch's; values are bytes, whatever its annotations say."""

    def set(self, key: str, value: bytes, /) -> None:
        """Set a value; not acknowledged."""

    def get(self, key: str, /) -> bytes:
        """The value, waited for where there is none."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all are there."""
        ...

    def compare_set(self, key: str, expected: bytes, desired: bytes, /) -> bytes:
        """Set a value if it is the expected one, or if it is not there and none was expected."""
        ...

    def delete_key(self, key: str, /) -> bool:
        """Delete, if it is there."""
        ...


def clone_of(store: object) -> Callable[[], Store]:
    """Opens connections of their own to where a store of torch's is, with the prefixes that it has.

    Args:
        store: of a rendezvous.

    Raises:
        ValueError: by what is returned, where the installed torch has no way to that.
    """

    def connect() -> Store:
        clone: Any = getattr(store, "clone", None)
        if clone is None:
            raise ValueError(f"{type(store).__name__} has no second connection")
        cloned: Store = clone()
        return cloned

    return connect


class Traffic:
    """What went over the connection.

    Attributes:
        messages: requests to the store; sent and received bytes of keys and values alone.
        connections: how many were made.
    """

    def __init__(self) -> None:
        self.messages = self.sent = self.received = self.connections = 0


def reads_at_once(store: Store) -> bool:
    """Whether a compare-and-set reads: it gives a value back, and the expected one where there is no key.

    So it is on ``TCPStore`` (measured); nothing is stored by it.
    """
    return store.compare_set("rankscope/nodes/no-such-key", _NOT_THERE, _NOT_THERE) == _NOT_THERE


class _Lane:
    """One connection and its thread."""

    def __init__(self, connect: Callable[[], Store], answer: _Answer, traffic: Traffic, name: str) -> None:
        self._connect = connect
        self._answer = answer
        self._traffic = traffic
        self._store: Store | None = None
        self._reads_at_once = False
        self.calls: queue.SimpleQueue[StoreCall | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            try:
                if self._store is None:
                    self._store = self._connected()
                self._answer(self, carry_out(self._store, call, self._traffic, at_once=self._reads_at_once))
            except Exception as error:  # noqa: BLE001 - whatever a store of torch's raises: it is told
                self._store = None  # what is still under way on it belongs to nobody
                self._answer(self, Failed(time.monotonic(), f"{type(error).__name__}: {_first_line(error)}"))

    def _connected(self) -> Store:
        store = self._connect()
        self._traffic.connections += 1
        set_timeout: Any = getattr(store, "set_timeout", None)
        if set_timeout is not None:
            set_timeout(dt.timedelta(seconds=CALL_TIMEOUT))
        self._reads_at_once = reads_at_once(store)
        self._traffic.messages += 1
        return store


_Answer = Callable[[_Lane, Answered | Failed], None]


class StoreLink:
    """Makes calls, one at a time, and tells what came of them.

    Args:
        connect: opens a connection of its own; called in the link's thread, may block and raise.
        answer: is told the answer, in any thread; must return at once.
        name: of its thread.
        timeout: seconds for one call.

    Attributes:
        traffic: counts.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        answer: Callable[[Answered | Failed], None],
        *,
        name: str = "rankscope-nodes-store",
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._connect = connect
        self._answer = answer
        self._name = name
        self._timeout = timeout
        self._lock = threading.Lock()
        self._lane: _Lane | None = None
        self._left_behind: list[threading.Thread] = []
        self._due: float | None = None
        self.traffic = Traffic()

    def call(self, call: StoreCall) -> None:
        """Make a call; returns at once."""
        now = time.monotonic()
        why = f"{MOST_LEFT_BEHIND} calls of it have not come back"
        with self._lock:
            try:
                lane = self._lane = self._lane or self._new_lane()
            except RuntimeError as error:  # no more threads
                lane, why = None, str(error)
            self._due = now + self._timeout if lane is not None else None
        if lane is None:
            self._answer(Failed(now, why))
        else:
            lane.calls.put(call)

    @property
    def due(self) -> float | None:
        """When the call under way is overdue, monotonic seconds; ``None`` without one."""
        return self._due

    def give_up_overdue(self, now: float) -> None:
        """Leave a call behind that is overdue, with its connection; it counts as failed."""
        with self._lock:
            lane, due = self._lane, self._due
            if due is None or now < due or lane is None:
                return
            self._forget(lane)
        self._answer(Failed(now, f"no answer within {self._timeout:g} s"))

    def close(self) -> None:
        """End the connection; a call under way is left behind."""
        with self._lock:
            if self._lane is not None:
                self._forget(self._lane)

    def _new_lane(self) -> _Lane | None:
        self._left_behind = [thread for thread in self._left_behind if thread.is_alive()]
        if len(self._left_behind) >= MOST_LEFT_BEHIND:
            return None
        lane = _Lane(self._connect, self._answered, self.traffic, self._name)
        lane.thread.start()
        return lane

    def _forget(self, lane: _Lane) -> None:
        lane.calls.put(None)
        self._left_behind.append(lane.thread)
        self._lane = self._due = None

    def _answered(self, lane: _Lane, answer: Answered | Failed) -> None:
        with self._lock:
            if lane is not self._lane:
                return  # left behind
            self._due = None
        self._answer(answer)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]


def carry_out(store: Store, call: StoreCall, traffic: Traffic, *, at_once: bool) -> Answered:
    """Make a call; blocks as long as the store does.

    Args:
        store: of a connection that nobody else uses now.
        call: what is asked for.
        traffic: is counted up.
        at_once: whether a compare-and-set reads (``reads_at_once``).
    """
    number = 0
    values: tuple[bytes, ...] = ()
    began = time.time()
    match call:
        case Add(key, amount):
            number = store.add(key, amount)
            _count(traffic, 1, sent=len(key) + 8, received=8)
        case CompareSet(key, expected, value):
            values = (bytes(store.compare_set(key, expected, value)),)
            _count(traffic, 1, sent=len(key) + len(expected) + len(value), received=len(values[0]))
        case Put(items):
            for key, data in items:
                store.set(key, data)
                _count(traffic, 1, sent=len(key) + len(data))
            store.check([items[-1][0]])  # a set is not acknowledged; what follows it on the connection is
            _count(traffic, 1, sent=len(items[-1][0]), received=1)
        case Fetch(keys):
            values = tuple([_read(store, key, traffic, at_once=at_once) for key in keys])
        case Delete(keys):
            for key in keys:
                store.delete_key(key)
                _count(traffic, 1, sent=len(key), received=8)
    return Answered(time.monotonic(), number, values, began, time.time())


def _read(store: Store, key: str, traffic: Traffic, *, at_once: bool) -> bytes:
    """The value, ``b""`` without one; never waits for a key to come, as ``get`` does."""
    if at_once:
        value = bytes(store.compare_set(key, _NOT_THERE, _NOT_THERE))
        _count(traffic, 1, sent=len(key) + 2 * len(_NOT_THERE), received=len(value))
        return b"" if value == _NOT_THERE else value
    is_there = store.check([key])
    _count(traffic, 1, sent=len(key), received=1)
    if not is_there:
        return b""
    value = bytes(store.get(key))
    _count(traffic, 1, sent=len(key), received=len(value))
    return value


def _count(traffic: Traffic, messages: int, *, sent: int, received: int = 0) -> None:
    traffic.messages += messages
    traffic.sent += sent
    traffic.received += received
