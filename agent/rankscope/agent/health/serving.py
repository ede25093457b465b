"""What the server's process serves on which listener: the open paths on one, what needs the token on another.

Where the probes are on loopback already, one listener serves both. It knows sockets and applications, not
what is answered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from aiohttp import web

from rankscope.agent.health.api.application import Api
from rankscope.agent.health.connections import MAX_CONNECTIONS, REQUEST_TIMEOUT, Connections
from rankscope.agent.health.handover import ServerSettings
from rankscope.agent.health.lifetime import AgentLife
from rankscope.agent.health.listen import BACKLOG, HealthError, own_names
from rankscope.agent.health.routes import Source, make_app
from rankscope.agent.health.status import StatusReader

CLOSE_TIMEOUT: Final = 1.0


class Serving:
    """All listeners of one server process."""

    def __init__(self, settings: ServerSettings, agent: AgentLife, reader: StatusReader) -> None:
        self._settings = settings
        self._source = Source(reader, agent, timeout=settings.timeout)
        self._api: Api | None = None
        self._served: list[_Served] = []

    async def start(self, listener: socket.socket) -> None:
        """Answer on ``listener``, and on the one for what needs the token when there is one.

        Raises:
            HealthError: a listener cannot be served.
        """
        settings = self._settings
        api_listener = socket.socket(fileno=settings.api_fd) if settings.api_fd is not None else None
        if settings.offer and (settings.api_shared or api_listener is not None):
            own = own_names(*(one for one in (listener, api_listener) if one is not None))
            self._api = Api(self._source, settings.offer, own)
            _keep_out_of_logs(self._api)
        if self._api is not None and api_listener is None:
            await self._serve(self._api.app, listener)
            return
        await self._serve(make_app(self._source), listener)
        if self._api is not None and api_listener is not None:
            await self._serve(self._api.app, api_listener)

    async def _serve(self, app: web.Application, listener: socket.socket) -> None:
        served = _Served(app, self._settings)
        self._served.append(served)
        await served.start(listener)

    async def stop(self) -> None:
        """End all of it."""
        for served in self._served:
            served.refuse()
        if self._api is not None:
            await self._api.close()
        for served in self._served:
            await served.stop()


class _Served:
    """One application on one listener."""

    def __init__(self, app: web.Application, settings: ServerSettings) -> None:
        self._runner = web.AppRunner(
            app, handle_signals=False, shutdown_timeout=CLOSE_TIMEOUT, access_log=None
        )
        self._settings = settings
        self._connections: Connections | None = None
        self._accepting: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise HealthError("aiohttp gave no server")
        self._connections = connections = Connections(
            server,
            request_timeout=self._settings.request_timeout or REQUEST_TIMEOUT,
            limit=self._settings.max_connections or MAX_CONNECTIONS,
        )
        loop = asyncio.get_running_loop()
        self._accepting = await loop.create_server(connections, sock=listener, backlog=BACKLOG)
        self._sweeping = asyncio.create_task(connections.sweep_forever(), name="rankscope-health-sweep")

    def refuse(self) -> None:
        """Take no further connection."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._accepting is not None:
            self._accepting.close()

    async def stop(self) -> None:
        if self._connections is not None:
            self._connections.drop_all()
        await self._runner.cleanup()


def _keep_out_of_logs(api: Api) -> None:
    """No line of this process's log has the token in it, whatever a library writes of a request."""

    def without(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        for secret in api.secrets():
            text = text.replace(secret, "<token>")
        record.msg, record.args, record.exc_info = text, (), None
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(without)
