"""What other nodes' agents tell of their ranks now, and what they are told; over HTTP with the job's token.

One more source of ranks (``sources``): asked only while somebody looks, in turn, at most so many a second
however large the job is. Who asks gets what was told last and waits for nobody but the first time. A change
of the settings is handed on to each once. Agents are asked for themselves alone, so nothing goes round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from rankscope.agent.control.messages import Value
from rankscope.agent.health.api.answers import RankEntry, RanksAnswer, SettingsChange
from rankscope.agent.health.offer import Peer

PATH: Final = "/v1/ranks"
SETTINGS_PATH: Final = "/v1/settings"
OWN: Final = {"of": "node"}
CHANGED: Final = "changed"
INTERVAL: Final = 2.0
"""Seconds between two questions to the same agent, in a job of few nodes."""
_EACH: Final = 0.05
"""Seconds more for each agent: 20 questions a second in all."""
_PATIENCE: Final = 1.5
"""Seconds for an answer, and for all that come in time for who asks first."""
_STALE: Final = 3
"""Rounds without an answer after which an agent's ranks count as not observed."""
_AT_ONCE: Final = 16
_LARGEST: Final = 4 << 20
_CHANGE_PATIENCE: Final = 5.0
"""Seconds for an agent to take a change of the settings."""
_LARGEST_PROBLEM: Final = 64 << 10


class OtherAgents:
    """The ranks of the other nodes.

    Args:
        peers: their agents.
        token: the job's.

    Attributes:
        world_size: of the job as they tell it, 0 before.
    """

    def __init__(self, peers: Sequence[Peer], token: str) -> None:
        self.world_size = 0
        self._peers = tuple(peers)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._interval = max(INTERVAL, _EACH * len(self._peers))
        self._told: dict[Peer, tuple[float, tuple[RankEntry, ...]]] = {}
        self._due = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def ranks(self) -> Sequence[RankEntry]:
        """What they told last; of who has not answered for long, that it was not observed."""
        if not self._peers:
            return ()
        now = time.monotonic()
        is_first = self._asking is None
        if now >= self._due and (self._asking is None or self._asking.done()):
            self._due = now + self._interval
            self._asking = asyncio.create_task(self._ask_all(), name="rankscope-health-others")
        if is_first and self._asking is not None:
            await asyncio.wait({self._asking}, timeout=_PATIENCE)
        stale = time.monotonic() - _STALE * self._interval
        return [
            entry if at > stale else _unobserved(entry)
            for at, entries in self._told.values()
            for entry in entries
        ]

    async def close(self) -> None:
        """Ask nobody any more."""
        asking, self._asking, self._peers = self._asking, None, ()
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking}, timeout=_PATIENCE)

    async def change_settings(self, change: Mapping[str, Value]) -> dict[str, str]:
        """Hand a change of the settings on to all.

        Args:
            change: new values by the option's name.

        Returns:
            By node: ``changed``, or why it is not, in a line.
        """
        told: dict[str, str] = {}

        async def hand_on(session: aiohttp.ClientSession, peer: Peer) -> None:
            told[peer.node] = await _changed(session, peer, change)

        await self._each(hand_on, patience=_CHANGE_PATIENCE)
        return dict(sorted(told.items()))

    async def _ask_all(self) -> None:
        await self._each(self._ask, patience=_PATIENCE)

    async def _each(
        self, ask: Callable[[aiohttp.ClientSession, Peer], Awaitable[None]], *, patience: float
    ) -> None:
        """Ask every agent, some at a time, each for so many seconds."""
        turns = asyncio.Semaphore(_AT_ONCE)
        timeout = aiohttp.ClientTimeout(total=patience)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers, trust_env=False
        ) as session:

            async def in_turn(peer: Peer) -> None:
                async with turns:
                    await ask(session, peer)

            await asyncio.gather(*map(in_turn, self._peers))

    async def _ask(self, session: aiohttp.ClientSession, peer: Peer) -> None:
        try:
            async with session.get(peer.api + PATH, params=OWN, allow_redirects=False) as response:
                if response.status != HTTPStatus.OK:
                    return
                data = await _read(response, _LARGEST)
            if data is None:
                return
            told = msgspec.json.decode(data, type=RanksAnswer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return  # a node that is gone, or one whose agent starts anew: it grows stale
        self.world_size = max(self.world_size, told.world_size)
        self._told[peer] = time.monotonic(), told.ranks


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body, ``None`` where it is larger than it can be."""
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > most:
            return None
    return bytes(data)


async def _changed(session: aiohttp.ClientSession, peer: Peer, change: Mapping[str, Value]) -> str:
    body = msgspec.json.encode(SettingsChange(dict(change)))
    headers = {"Content-Type": "application/json"}
    try:
        async with session.patch(
            peer.api + SETTINGS_PATH, params=OWN, data=body, headers=headers, allow_redirects=False
        ) as response:
            if response.status == HTTPStatus.OK:
                return CHANGED
            problem = msgspec.json.decode(await _read(response, _LARGEST_PROBLEM) or b"{}", type=_Problem)
            return problem.detail or f"its agent refused it ({response.status})"
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return "its agent did not answer"


class _Problem(msgspec.Struct, frozen=True):
    """What a refusal says."""

    detail: str = ""


def _unobserved(entry: RankEntry) -> RankEntry:
    return msgspec.structs.replace(
        entry, state="unobserved", step=None, seconds_since_progress=None, steps_per_second=None, where=""
    )
