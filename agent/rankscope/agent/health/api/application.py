"""The application of the listener that serves what needs the token, put together; it ends what it started."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from aiohttp import web

from rankscope.agent.health.api.guard import Guard, add_headers
from rankscope.agent.health.api.routes import add_api_routes
from rankscope.agent.health.api.served_job import ServedJobs
from rankscope.agent.health.api.stream import Streams
from rankscope.agent.health.live import add_live_routes
from rankscope.agent.health.offer import OfferReader
from rankscope.agent.health.routes import OPEN_PATHS, Source, make_app

_GOODBYE_SECONDS: Final = 0.5


class Api:
    """What needs the token.

    Args:
        source: of the open answers, which are served here too.
        offer: path of what the agent offers.
        own_hosts: names and addresses that a ``Host`` header may have.

    Attributes:
        app: the application.
    """

    def __init__(self, source: Source, offer: str, own_hosts: tuple[str, ...]) -> None:
        self._jobs = ServedJobs(OfferReader(Path(offer)), source.view)
        self._streams = Streams(self._jobs)
        guard = Guard(self._jobs, OPEN_PATHS, own_hosts)
        self.app: web.Application = make_app(source, guard=guard.middleware())
        self.app.on_response_prepare.append(add_headers)
        add_api_routes(self.app, self._streams)
        add_live_routes(self.app)

    def secrets(self) -> tuple[str, ...]:
        """What must not get into a log."""
        job = self._jobs.now()
        return (job.offer.token, job.access.cookie_value) if job is not None else ()

    async def close(self) -> None:
        """Let streams say good-bye, and end the reader."""
        self._jobs.closing.set()
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._streams.all_closed.wait(), _GOODBYE_SECONDS)
        await self._jobs.close()
