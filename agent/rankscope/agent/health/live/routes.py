"""What a browser is served: the page, one style, one script, one icon, and nothing that is not in this table.

The page's policy allows its own files and requests to its own server, and nothing else: no inline script or
style, no other origin, no frame around it. Names of the job reach it as JSON only.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from rankscope.diag.report.html.render import asset

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "rankscope",
    "X-Content-Type-Options": "nosniff",
}
"""On the page and its files."""
REPORT_SCRIPTS: Final = (
    "dom.js",
    "verdict.js",
    "icicle.js",
    "waits.js",
    "ranks.js",
    "timeline.js",
    "stacks.js",
    "tables.js",
)
"""The parts that the page shares with the report, in the order in which they are put together."""
SCRIPTS: Final = ("now.js", "grid.js", "connection.js", "analyse.js", "live.js")
"""The page's own; the last one starts it."""
_HERE: Final = Path(__file__).parent / "assets"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_live_routes(app: web.Application) -> None:
    """Add the page at ``/`` and its files below ``/live/``; the caller guards them."""
    files: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html", lambda: _own("live.html")),
        "/live/style.css": ("text/css", style),
        "/live/script.js": ("text/javascript", script),
        "/live/icon.svg": ("image/svg+xml", lambda: _own("icon.svg")),
    }
    for path, (content_type, text) in files.items():
        app.router.add_get(path, _handler(content_type, text))


def style() -> str:
    """The report's style, and what the page has beside it."""
    return asset("style.css") + _own("live.css")


def script() -> str:
    """The report's parts and the page's own, in one file: they share one name, ``Rankscope``."""
    return "".join([*map(asset, REPORT_SCRIPTS), *map(_own, SCRIPTS)])


def _handler(content_type: str, text: Callable[[], str]) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text(), content_type=content_type, charset="utf-8", headers=HEADERS)

    return answer


@functools.cache
def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
