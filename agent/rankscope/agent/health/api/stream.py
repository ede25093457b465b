"""``/v1/stream``: server-sent events of one job, to a client that takes them.

Nothing is kept for a client but its place in the log: what it has not taken is read again for it. A client
that takes nothing for ``SEND_SECONDS`` is dropped.
"""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import hdrs, web

from rankscope.agent.health.api.answers import RanksAnswer
from rankscope.agent.health.api.questions import FollowEvents
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.agent.health.api.served_job import ServedJob, ServedJobs
from rankscope.agent.health.connections import FIXED_HEADERS, grant_time, problem
from rankscope.diag.store.events import iso_time

MOST_STREAMS: Final = 32
SEND_SECONDS: Final = 10.0
TURN: Final = 1.0
"""Seconds between two looks for something new."""
ALIVE: Final = 5.0
"""Seconds after which a client hears something, if only that there is nothing."""
_RETRY_MS: Final = 2000
_END_OF_LINE: Final = re.compile(r"\r\n|\r|\n")
_GONE: Final = "the agent ends"


class Streams:
    """All open streams.

    Args:
        jobs: the job that is served.
    """

    def __init__(self, jobs: ServedJobs) -> None:
        self._jobs = jobs
        self._open = 0
        self.all_closed = asyncio.Event()
        self.all_closed.set()

    async def answer(self, request: web.Request, job: ServedJob) -> web.StreamResponse:
        """Send events until the client goes, takes nothing, or the agent ends."""
        if self._open >= MOST_STREAMS:
            why = f"{MOST_STREAMS} streams are open already"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, why, headers={"Retry-After": "10"})
        self._open += 1
        self.all_closed.clear()
        try:
            return await self._send_all(request, job)
        finally:
            self._open -= 1
            if not self._open:
                self.all_closed.set()

    async def _send_all(self, request: web.Request, job: ServedJob) -> web.StreamResponse:
        headers = FIXED_HEADERS | {hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        stream = _Stream(request, response, job)
        try:
            await stream.begin()
            while not self._jobs.closing.is_set() and not self._jobs.is_over():
                if self._jobs.now() is not job:
                    return response  # another token, or another folder: whoever has it comes again
                if request.transport is None or request.transport.is_closing():
                    return response
                await stream.turn()
                await _pause(self._jobs.closing, TURN)
            await stream.gone()
        except (asyncio.TimeoutError, TimeoutError):
            _drop(request)
        except ConnectionError:
            pass  # it went
        return response


class _Stream:
    """One client and its place in the log."""

    def __init__(self, request: web.Request, response: web.StreamResponse, job: ServedJob) -> None:
        self._request, self._response, self._job = request, response, job
        self._asked = FollowEvents(after=request.headers.get("Last-Event-ID", ""), at_end=True)
        self._ranks: RanksAnswer | None = None
        self._spoke = 0.0

    async def begin(self) -> None:
        """Say how long to wait before coming again, and where the log is."""
        await self._send(f"retry: {_RETRY_MS}\n\n")
        last = await self._events()
        await self._alive(last)

    async def turn(self) -> None:
        """Send what is new."""
        await self._events()
        ranks = await self._job.ranks.answer()
        if self._ranks is None or _differs(ranks, self._ranks):
            self._ranks = ranks
            await self._send(_message("ranks", msgspec.json.encode(ranks).decode()))
        if time.monotonic() - self._spoke >= ALIVE:
            await self._alive()

    async def gone(self) -> None:
        """Say that nothing comes any more."""
        await self._send(_message("gone", msgspec.json.encode({"reason": _GONE}).decode()))

    async def _events(self) -> str:
        """Send the events that came; returns the last one's id."""
        while True:
            try:
                piece = await self._job.follow(self._asked)
            except NoAnswerError:
                return ""  # a share that is away: what comes is read when it is back
            if piece.reset:
                await self._send(_message("reset", "{}"))
            if piece.events:
                await self._send("".join(_message(one.name, one.line, one.id) for one in piece.events))
            last = piece.last or self._asked.after
            self._asked = FollowEvents(piece.generation, piece.position, after=last)
            if len(piece.events) < self._asked.limit:
                return last

    async def _alive(self, last: str = "") -> None:
        now = msgspec.json.encode({"time": iso_time(time.time())}).decode()
        await self._send(_message("alive", now, last))

    async def _send(self, text: str) -> None:
        await asyncio.wait_for(self._response.write(text.encode()), SEND_SECONDS)
        grant_time(self._request)
        self._spoke = time.monotonic()


def _message(event: str, data: str, event_id: str = "") -> str:
    """One message; what is stored is one line, but a field must never end early whatever is in it."""
    lines = "".join(f"data: {line}\n" for line in _END_OF_LINE.split(data))
    identity = f"id: {_line(event_id)}\n" if event_id else ""
    return f"{identity}event: {_line(event)}\n{lines}\n"


def _line(text: str) -> str:
    return "".join(each for each in text if each not in "\r\n\0")


def _differs(new: RanksAnswer, old: RanksAnswer) -> bool:
    return msgspec.structs.replace(new, time="") != msgspec.structs.replace(old, time="")


async def _pause(closing: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(closing.wait(), seconds)
    except (asyncio.TimeoutError, TimeoutError):
        return


def _drop(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
