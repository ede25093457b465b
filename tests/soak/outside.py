"""The clients that a soak has all the time: requests on the open paths, event streams that come and go.

They are outsiders: they know the address and what ``agent.json`` and the token's file say, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from benchmarks.paced import Latencies, send
from tests.soak.beside import Beside
from tests.soak.door import Door
from tests.soak.samples import Requests, Streams

_CONNECTIONS: Final = 8
_RENEW_AFTER: Final = 50
"""Requests after which a connection is another one: some 2 new ones a second."""
_LONGEST: Final = 86_400.0
_SHORTEST_STREAM: Final = 0.5
_LONGEST_STREAM: Final = 5.0
_MOST_FAILURES: Final = 20


def requests_beside(door: Door, paths: Sequence[str], rate: float) -> Beside[Requests]:
    """Requests on the open paths, in turn, until it is over."""

    async def run(over: asyncio.Event) -> Requests:
        begin = time.monotonic()
        found: Latencies = await send(
            door.open,
            paths,
            rate=rate,
            seconds=_LONGEST,
            connections=_CONNECTIONS,
            renew_after=_RENEW_AFTER,
            over=over,
        )
        return Requests(
            len(found.seconds) + found.unanswered,
            time.monotonic() - begin,
            dict(found.statuses),
            found.unanswered,
            found.quantile(0.5),
            found.p99,
        )

    return Beside("soak-requests", run)


def streams_beside(door: Door, count: int) -> Beside[Streams]:
    """Clients of the event stream: each opens it, reads for a while or not at all, goes, and comes again."""

    async def run(over: asyncio.Event) -> Streams:
        if door.api is None:
            return Streams()
        taken = _Taken()
        await asyncio.gather(*(_come_and_go(door, over, taken, number) for number in range(count)))
        return Streams(taken.opened, taken.events, taken.failures)

    return Beside("soak-streams", run)


@dataclass(slots=True)
class _Taken:
    opened: int = 0
    events: int = 0
    failures: list[str] = field(default_factory=list[str])

    def failed(self, why: str) -> None:
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(why)


async def _come_and_go(door: Door, over: asyncio.Event, taken: _Taken, number: int) -> None:
    chance = random.Random(number)
    last = ""
    while not over.is_set():
        stays = chance.uniform(_SHORTEST_STREAM, _LONGEST_STREAM)
        try:
            last = await _one_stream(door, over, taken, stays=stays, reads=chance.random() < 0.8, last=last)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            taken.failed(f"{type(error).__name__}: {error}")
            await _pause(over, 1.0)


async def _pause(over: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)


async def _one_stream(
    door: Door, over: asyncio.Event, taken: _Taken, *, stays: float, reads: bool, last: str
) -> str:
    """One visit; the id of the last event that it has seen."""
    assert door.api is not None
    reader, writer = await asyncio.open_connection(*door.api)
    try:
        resume = f"Last-Event-ID: {last}\r\n" if last else ""
        host = f"{door.api[0]}:{door.api[1]}"
        head = (
            f"GET /v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {door.token}\r\n{resume}\r\n"
        )
        writer.write(head.encode())
        status = (await reader.readline()).decode(errors="replace").strip()
        if f" {HTTPStatus.OK} " not in f"{status} ":
            taken.failed(status or "no answer")
            await _pause(over, 1.0)
            return last
        taken.opened += 1
        if not reads:
            await _pause(over, stays)
            return last
        deadline = time.monotonic() + stays
        while (left := deadline - time.monotonic()) > 0 and not over.is_set():
            try:
                line = (await asyncio.wait_for(reader.readline(), left)).decode(errors="replace")
            except (asyncio.TimeoutError, TimeoutError):
                break
            if not line:
                break
            taken.events += line.startswith("event:")
            if line.startswith("id:"):
                last = line.removeprefix("id:").strip()
        return last
    finally:
        writer.transport.abort()
