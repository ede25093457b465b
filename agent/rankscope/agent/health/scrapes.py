"""``/metrics`` as the health server answers it: one answer is kept for a moment.

To write it out takes some milliseconds, and the probes are answered by the same loop: however often it is
asked for, it is made twice a second at most for each format. What it says is ``metrics``' affair.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from rankscope.agent.health.connections import FIXED_HEADERS
from rankscope.agent.health.metrics import Scrape, metrics_answer
from rankscope.agent.health.model import PageView

KEPT_SECONDS: Final = 0.5
_MOST_FORMATS: Final = 8
_LONGEST_ACCEPT: Final = 512
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class Scrapes:
    """Answers ``GET /metrics``.

    Args:
        view: reads the page, ``None`` once the agent has ended.
        timeout: seconds without a turn of either loop after which the agent counts as dead.
    """

    def __init__(self, view: Callable[[], PageView | None], *, timeout: float) -> None:
        self._view = view
        self._timeout = timeout
        self._kept: dict[str, tuple[float, bytes, str]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The page in the format that is asked for; 503 once the agent has ended, so that ``up`` is 0."""
        view = self._view()
        if view is None:
            body, content_type = b"# the agent has ended\n", _TEXT
            return _response(body, content_type, status=HTTPStatus.SERVICE_UNAVAILABLE)
        accept = request.headers.get(hdrs.ACCEPT, "")[:_LONGEST_ACCEPT]
        now = time.monotonic()
        made, body, content_type = self._kept.get(accept, (-KEPT_SECONDS, b"", ""))
        if now - made >= KEPT_SECONDS:
            scrape = Scrape(view, time.monotonic_ns(), time.time(), self._timeout)
            body, content_type = metrics_answer(scrape, accept)
            if len(self._kept) >= _MOST_FORMATS:
                self._kept.clear()
            self._kept[accept] = now, body, content_type
        return _response(body, content_type)


def _response(body: bytes, content_type: str, *, status: int = HTTPStatus.OK) -> web.Response:
    headers = FIXED_HEADERS | {hdrs.CONTENT_TYPE: content_type}
    return web.Response(status=status, body=body, headers=headers)
