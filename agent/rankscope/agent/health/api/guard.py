"""The guard before all that needs the token: whose name the request has, who asks, and how often.

It knows which paths are open, and that everything else is not: a path that is added is closed until it is
named as open. What the answers say is not its business.
"""

from __future__ import annotations

import html
import time
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from rankscope.agent.health.api.access import is_our_host, is_own_page
from rankscope.agent.health.api.served_job import ServedJob, ServedJobs
from rankscope.agent.health.connections import FIXED_HEADERS, problem
from rankscope.agent.health.rates import Buckets, peer_of, whole_seconds

API_RATE, API_BURST = 100.0, 300.0
"""Questions a second of one peer that has the token."""
REFUSED_RATE, REFUSED_BURST = 5.0, 100.0
"""Refusals a second of one peer; they have a bucket of their own, so that nobody's wrong tokens keep out
whoever has the right one."""
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="rankscope"'}
_NEEDED: Final = "the job's token is needed (Authorization: Bearer ...): the file token in the job's folder"
_READS: Final = frozenset({"GET", "HEAD"})
_NO_CONTENT_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS: Final = {
    "Content-Security-Policy": _NO_CONTENT_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""On all that needs the token, unless the page has stricter ones of its own."""
JOB: Final = "rankscope-job"
"""Under which a request has the ``ServedJob`` that it was admitted to."""


class Guard:
    """Lets through what may pass.

    Args:
        jobs: the job that is served.
        open_paths: those that need no token.
        own_hosts: names of this host and the addresses that are listened on.
    """

    def __init__(self, jobs: ServedJobs, open_paths: frozenset[str], own_hosts: tuple[str, ...]) -> None:
        self._jobs = jobs
        self._open = open_paths
        self._own = own_hosts
        self._asked = Buckets(API_RATE, API_BURST)
        self._refused = Buckets(REFUSED_RATE, REFUSED_BURST)

    def middleware(self) -> Middleware:
        """As aiohttp takes it."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            if resource is None or resource.canonical in self._open:
                return await handler(request)  # nothing there, or open
            job = self._jobs.now()
            if job is None:
                return _unavailable()
            if not is_our_host(request.headers.get(hdrs.HOST, ""), (*self._own, *job.offer.host_names)):
                return self._refuse(request, HTTPStatus.MISDIRECTED_REQUEST, "this host has another name")
            return await self._admit(request, handler, job)

        return guarded

    async def _admit(self, request: web.Request, handler: Handler, job: ServedJob) -> web.StreamResponse:
        if request.path == "/" and request.method in _READS and "token" in request.query:
            return self._first_visit(request, job)
        if hdrs.AUTHORIZATION in request.headers:
            if not job.access.is_bearer(request.headers[hdrs.AUTHORIZATION]):
                return self._refuse(request, HTTPStatus.UNAUTHORIZED, "the token is not this job's")
        elif job.access.has_cookie(request.cookies):
            if not is_own_page(request.headers, writes=request.method not in _READS):
                return self._refuse(request, HTTPStatus.FORBIDDEN, "a cookie is for the job's own page only")
        else:
            return self._refuse(request, HTTPStatus.UNAUTHORIZED, _NEEDED)
        wait = self._asked.take(peer_of(request.remote or ""), time.monotonic())
        if wait:
            return too_many(wait)
        request[JOB] = job
        return await handler(request)

    def _first_visit(self, request: web.Request, job: ServedJob) -> web.StreamResponse:
        """A browser that brings the token in the URL: it gets a cookie, and an address without the token."""
        given = request.query.getall("token")
        if len(given) != 1 or not job.access.is_token(given[0]):
            return self._refuse(request, HTTPStatus.UNAUTHORIZED, "the token is not this job's")
        if request.headers.get("Sec-Fetch-Site", "none").lower() in ("cross-site", "same-site"):
            # From a link in a chat or a mail: a redirect would still count as that site's, and the cookie
            # would not be sent with it. What our own answer leads to is ours.
            response = _document('<meta http-equiv="refresh" content="0;url=/">', status=HTTPStatus.OK)
        else:
            response = web.Response(status=HTTPStatus.SEE_OTHER, headers=FIXED_HEADERS | {"Location": "/"})
        response.set_cookie(
            job.access.cookie_name, job.access.cookie_value, path="/", httponly=True, samesite="Strict"
        )
        return response

    def _refuse(self, request: web.Request, status: HTTPStatus, why: str) -> web.StreamResponse:
        wait = self._refused.take(peer_of(request.remote or ""), time.monotonic())
        if wait:
            return too_many(wait)
        headers = _CHALLENGE if status == HTTPStatus.UNAUTHORIZED else {}
        if request.path == "/" and "text/html" in request.headers.get(hdrs.ACCEPT, ""):
            response = _document(
                f"<p>{html.escape(why)}.</p><p>With the token in the address (<code>/?token=...</code>) this "
                'page opens; was it opened before, <a href="/">open it again</a>.</p>',
                status=status,
            )
            response.headers.update(headers)
            return response
        return problem(status, why, headers=headers)


def too_many(wait: float) -> web.Response:
    """Refuse a peer that asks too often."""
    seconds = str(whole_seconds(wait))
    return problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests", headers={"Retry-After": seconds})


def _unavailable() -> web.Response:
    why = "the agent has not said yet where its records are"
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, why, headers={"Retry-After": "1"})


def _document(body: str, *, status: HTTPStatus) -> web.Response:
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Rankscope</title>{body}</html>'
    return web.Response(status=status, text=text, content_type="text/html", headers=FIXED_HEADERS)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """``on_response_prepare``: what every answer of the API's listener has."""
    del request
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
