"""Limits of the health server's connections: a slow, silent or greedy client holds nobody else.

One rule covers all of them: a connection has to bring a whole request head within ``REQUEST_TIMEOUT`` of
being opened, and another one within ``IDLE_TIMEOUT`` of the last, else it is dropped; an answer that is
not taken in that time falls under it too. At the cap the connection that is nearest to its end makes room.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

REQUEST_TIMEOUT: Final = 10.0
IDLE_TIMEOUT: Final = 30.0
SWEEP_INTERVAL: Final = 1.0
MAX_CONNECTIONS: Final = 512
MAX_LINE_BYTES: Final = 4096
MAX_FIELD_BYTES: Final = 4096
MAX_HEADERS: Final = 64
LINGER: Final = 2.0
"""Seconds in which a body that nobody asked for is read away."""
_SPARE_DESCRIPTORS: Final = 64
_LOG: Final = logging.getLogger("rankscope.agent.health")


FIXED_HEADERS: Final = {"Cache-Control": "no-store", "Server": "rankscope"}
"""On every answer; aiohttp would otherwise name itself, its version and Python's."""


def problem(status: int, detail: str, *, headers: dict[str, str] | None = None) -> web.Response:
    """An error answer as ``application/problem+json`` (RFC 9457)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/problem+json",
        headers=FIXED_HEADERS | (headers or {}),
    )


class Connection(web.RequestHandler):
    """aiohttp's connection with a deadline, and with errors as problem documents."""

    __slots__ = ("_connections", "deadline")

    def __init__(self, server: web.Server, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=IDLE_TIMEOUT,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER,
            auto_decompress=False,  # 60 KB that unfold to 60 MB would hold the loop before anything is asked
        )
        self._connections = connections
        self.deadline = loop.time() + connections.request_timeout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in."""
        super().connection_made(transport)
        self._connections.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let it go."""
        self._connections.closed(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """End it at once, unsent bytes included."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what the parser or a handler choked on."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is already sent")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _LOG.error("a request failed", exc_info=exc)
        del message  # the parser's: it may repeat a URL, with a token in it
        response = problem(status, "not a request" if status == HTTPStatus.BAD_REQUEST else "")
        response.force_close()
        return response


class Connections:
    """All open connections of one server, oldest first."""

    def __init__(
        self,
        server: web.Server,
        *,
        request_timeout: float = REQUEST_TIMEOUT,
        limit: int = MAX_CONNECTIONS,
    ) -> None:
        """Start with none.

        Args:
            server: aiohttp's server, which answers.
            request_timeout: seconds in which a new connection must bring its first request head.
            limit: most connections at a time; fewer where this process may not open as many files.
        """
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._open: dict[Connection, None] = {}
        self._some_open = asyncio.Event()
        self._limit = min(limit, _affordable_connections())
        self.request_timeout = request_timeout

    def __call__(self) -> Connection:
        """Protocol factory for ``loop.create_server``."""
        return Connection(self._server, self, self._loop)

    def opened(self, connection: Connection) -> None:
        """Count a connection in; past the limit the one nearest to its deadline goes."""
        if len(self._open) >= self._limit:
            victim = min(self._open, key=lambda other: other.deadline)
            self.closed(victim)  # asyncio tells it later, and more may come until then
            victim.drop()
        self._open[connection] = None
        self._some_open.set()

    def closed(self, connection: Connection) -> None:
        """Count a connection out."""
        self._open.pop(connection, None)
        if not self._open:
            self._some_open.clear()

    async def sweep_forever(self) -> None:
        """Drop what is past its deadline, every ``SWEEP_INTERVAL`` while there are connections."""
        while True:
            await self._some_open.wait()
            await asyncio.sleep(SWEEP_INTERVAL)
            now = self._loop.time()
            for connection in [each for each in self._open if each.deadline < now]:
                connection.drop()

    def drop_all(self) -> None:
        """End every connection."""
        for connection in list(self._open):
            connection.drop()


def grant_time(request: web.Request, seconds: float = IDLE_TIMEOUT) -> None:
    """Give the connection of a request this long until its next one (a stream gives itself more)."""
    protocol = request.protocol
    if isinstance(protocol, Connection):
        protocol.deadline = asyncio.get_running_loop().time() + seconds


def _affordable_connections() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _SPARE_DESCRIPTORS)
