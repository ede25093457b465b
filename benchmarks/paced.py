"""Sends HTTP requests when they are due, over keep-alive connections, and says how long answers took.

A latency counts from when its request was due, so that a server that stands still cannot hide it. It must not
know what is asked nor what an answer means.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

CONNECTIONS: Final = 64
GRACE: Final = 10.0
"""Seconds after the last request in which answers still count."""
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_REQUEST: Final = "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"


@dataclass(frozen=True)
class Latencies:
    """Seconds of the requests that were answered, sorted, and how many were not.

    Attributes:
        statuses: how often each status was answered, by ``path status``.
    """

    seconds: list[float]
    unanswered: int
    statuses: Counter[str] = field(default_factory=Counter[str])

    def quantile(self, share: float) -> float:
        """With those that were never answered counted as the slowest."""
        place = int(share * (len(self.seconds) + self.unanswered))
        return self.seconds[place] if place < len(self.seconds) else float("inf")

    @property
    def p99(self) -> float:
        """The latency that one in a hundred exceeds."""
        return self.quantile(0.99)


@dataclass
class _Taken:
    """What all connections have been answered."""

    seconds: list[float] = field(default_factory=list[float])
    statuses: Counter[str] = field(default_factory=Counter[str])
    lost: int = 0


class Client(asyncio.Protocol):
    """One keep-alive connection; requests are answered in order.

    Attributes:
        due: requests that wait for their answer, as (when they were due, path).
        asked: so many in all.
        is_open: until either side ends it.
    """

    def __init__(self, taken: _Taken, host: str) -> None:
        self.due: deque[tuple[float, str]] = deque()
        self.asked = 0
        self.is_open = False
        self.answered = asyncio.Event()
        self._host = host
        self._taken = taken
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_open = False
        self._taken.lost += len(self.due)
        self.due.clear()
        self.answered.set()

    def ask(self, due: float, path: str) -> None:
        """Send a request that was due at ``due`` (``time.perf_counter()``)."""
        assert self._transport is not None
        self.asked += 1
        self.due.append((due, path))
        self._transport.write(_REQUEST.format(path=path, host=self._host).encode())

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(_END)) >= 0:
            head = self._rest[:end].lower()
            length = int(head.split(_LENGTH)[1].split(b"\r\n")[0])
            if len(self._rest) < end + len(_END) + length:
                return
            self._rest = self._rest[end + len(_END) + length :]
            due, path = self.due.popleft()
            self._taken.seconds.append(time.perf_counter() - due)
            self._taken.statuses[f"{path} {head.split()[1].decode()}"] += 1
            self.answered.set()

    def close(self) -> None:
        """End it at once; what was not answered by then is lost."""
        assert self._transport is not None
        self._transport.abort()


async def send(
    address: tuple[str, int],
    paths: Sequence[str],
    *,
    rate: float,
    seconds: float,
    connections: int = CONNECTIONS,
    renew_after: int | None = None,
    idle: int = 0,
    over: asyncio.Event | None = None,
) -> Latencies:
    """Send requests at a rate.

    Args:
        address: host and port.
        paths: asked in turn.
        rate: requests a second.
        seconds: for how long.
        connections: over so many.
        renew_after: requests after which a connection is ended and another one opened; ``None``: never.
        idle: so many more connections are open and silent; every second one has made a request before.
        over: ends it before its time.
    """
    taken = _Taken()
    silent = await _silent(address, paths[0], idle)
    clients = [await _open(address, taken) for _ in range(connections)]
    begin = time.perf_counter() + 0.2
    for number in range(int(rate * seconds)):
        if over is not None and over.is_set():
            break
        due = begin + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        place = number % connections
        client = clients[place]
        is_old = renew_after is not None and client.asked >= renew_after and not client.due
        if is_old or not client.is_open:
            if client.is_open:
                client.close()
            clients[place] = client = await _open(address, taken)
        client.ask(due, paths[number % len(paths)])
    await asyncio.wait({asyncio.create_task(_all_answered(clients))}, timeout=GRACE)
    unanswered = taken.lost + sum(len(client.due) for client in clients)
    for client in [*clients, *silent]:
        client.close()
    return Latencies(sorted(taken.seconds), unanswered, taken.statuses)


async def _open(address: tuple[str, int], taken: _Taken) -> Client:
    loop = asyncio.get_running_loop()
    _transport, client = await loop.create_connection(
        lambda: Client(taken, f"{address[0]}:{address[1]}"), *address
    )
    return client


async def _silent(address: tuple[str, int], path: str, count: int) -> list[Client]:
    """Connections that say nothing; what half of them asked before does not count."""
    apart = _Taken()
    clients = [await _open(address, apart) for _ in range(count)]
    for client in clients[::2]:
        client.ask(time.perf_counter(), path)
    await asyncio.wait_for(_all_answered(clients), GRACE)
    return clients


async def _all_answered(clients: Sequence[Client]) -> None:
    for client in clients:
        while client.due:
            client.answered.clear()
            await client.answered.wait()
