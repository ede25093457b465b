"""The table of what the health server answers, and the frame around every answer.

A path is one row in ``PROBES`` (open, GET and HEAD) or, later, one more ``router.add_...`` beside them.
The rows know nothing of sockets; ``probes`` decides what they say.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from rankscope.agent.health.connections import FIXED_HEADERS, grant_time, problem
from rankscope.agent.health.lifetime import AgentLife
from rankscope.agent.health.probes import Answer, agent_gone, health, livez, readyz
from rankscope.agent.health.status import PageView, StatusReader

MAX_BODY_BYTES: Final = 64 * 1024
HEALTH_JSON: Final = "application/health+json"

Probe = Callable[[PageView, int, float], Answer]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PROBES: Final[dict[str, Probe]] = {"/livez": livez, "/readyz": readyz, "/health": health, "/healthz": health}


class Source:
    """Where the answers come from: the page, and whether the agent still lives."""

    def __init__(self, reader: StatusReader, agent: AgentLife, *, timeout: float) -> None:
        self._reader = reader
        self._agent = agent
        self._timeout = timeout

    def ask(self, probe: Probe) -> Answer:
        """One probe's answer now."""
        if self._agent.is_over():
            return agent_gone(self._agent.pid)
        return probe(self._reader.read(), time.monotonic_ns(), self._timeout)


def make_app(source: Source) -> web.Application:
    """The application with all routes of the table."""
    app = web.Application(middlewares=[_framed], client_max_size=MAX_BODY_BYTES)
    for path, probe in PROBES.items():
        app.router.add_get(path, _handler(source, probe))
    return app


def _handler(source: Source, probe: Probe) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        found = source.ask(probe)
        return web.Response(
            status=found.code,
            body=msgspec.json.encode(found.body),
            content_type=HEALTH_JSON,
            headers=FIXED_HEADERS,
        )

    return answer


@web.middleware
async def _framed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Grant the connection its time, refuse large bodies, turn refusals into problem documents."""
    grant_time(request)
    if (request.content_length or 0) > MAX_BODY_BYTES:
        refusal = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes")
        refusal.force_close()
        return refusal
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refused:
        allowed = ", ".join(sorted(refused.allowed_methods))
        return problem(refused.status, f"allowed: {allowed}", headers={"Allow": allowed})
    except web.HTTPNotFound as refused:
        return problem(refused.status, f"there is {', '.join(PROBES)}")
    except web.HTTPError as refused:
        return problem(refused.status, refused.reason)
