"""The table of what the health server answers to everybody, and the frame around every answer.

A path is one row in ``PROBES`` (open, GET and HEAD); ``/metrics`` stands beside them. What needs the token is
added by ``with_api`` and guarded by ``api.guard``. The rows know nothing of sockets; ``probes`` decides what
they say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rankscope.agent.health.connections import FIXED_HEADERS, grant_time, problem
from rankscope.agent.health.lifetime import AgentLife
from rankscope.agent.health.probes import Answer, agent_gone, health, livez, readyz
from rankscope.agent.health.rates import Buckets, peer_of, whole_seconds
from rankscope.agent.health.scrapes import Scrapes
from rankscope.agent.health.status import PageView, StatusReader

MAX_BODY_BYTES: Final = 64 * 1024
HEALTH_JSON: Final = "application/health+json"
METRICS_PATH: Final = "/metrics"
RATE, BURST = 5000.0, 10000.0
"""Open questions a second of one peer; five times of what a busy cluster asks."""

Probe = Callable[[PageView, int, float], Answer]

PROBES: Final[dict[str, Probe]] = {"/livez": livez, "/readyz": readyz, "/health": health, "/healthz": health}
OPEN_PATHS: Final = frozenset({*PROBES, METRICS_PATH})


class Source:
    """Where the answers come from: the page, and whether the agent still lives."""

    def __init__(self, reader: StatusReader, agent: AgentLife, *, timeout: float) -> None:
        self._reader = reader
        self._agent = agent
        self.timeout = timeout

    def ask(self, probe: Probe) -> Answer:
        """One probe's answer now."""
        if self._agent.is_over():
            return agent_gone(self._agent.pid)
        return probe(self._reader.read(), time.monotonic_ns(), self.timeout)

    def view(self) -> PageView | None:
        """The page now, ``None`` once the agent has ended."""
        return None if self._agent.is_over() else self._reader.read()


def make_app(source: Source, *, guard: Middleware | None = None) -> web.Application:
    """The application with all open paths.

    Args:
        source: of the answers.
        guard: before whatever the caller adds to it; without, nothing may be added.
    """
    framed = _framed(Buckets(RATE, BURST))
    app = web.Application(
        middlewares=[framed] if guard is None else [framed, guard], client_max_size=MAX_BODY_BYTES
    )
    for path, probe in PROBES.items():
        app.router.add_get(path, _handler(source, probe))
    app.router.add_get(METRICS_PATH, Scrapes(source.view, timeout=source.timeout).answer)
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


def _framed(asked: Buckets) -> Middleware:
    """Grant the connection its time, refuse floods and large bodies, turn refusals into problem documents."""

    @web.middleware
    async def framed(request: web.Request, handler: Handler) -> web.StreamResponse:
        grant_time(request)
        wait = asked.take(peer_of(request.remote or ""), time.monotonic())
        if wait:
            seconds = str(whole_seconds(wait))
            return problem(
                HTTPStatus.TOO_MANY_REQUESTS, "too many requests", headers={"Retry-After": seconds}
            )
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return _too_large()
        return await _refusals(request, handler)

    return framed


async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refused:
        allowed = ", ".join(sorted(refused.allowed_methods))
        return problem(refused.status, f"allowed: {allowed}", headers={"Allow": allowed})
    except web.HTTPNotFound as refused:
        there = ", ".join((*PROBES, METRICS_PATH))
        return problem(refused.status, f"there is {there}, and /v1 where agent.json says")
    except web.HTTPRequestEntityTooLarge:
        return _too_large()
    except web.HTTPError as refused:
        return problem(refused.status, refused.reason)


def _too_large() -> web.Response:
    refusal = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes")
    refusal.force_close()
    return refusal
