"""The handlers of the API: from a request to a question, from an answer to a response.

What may be asked is in ``table``, who may ask in ``guard``; here is what a row's answer is made of.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from rankscope.agent.control.messages import ANALYZE_SECONDS, ControlError, Refusal
from rankscope.agent.health.api import answers, questions
from rankscope.agent.health.api.guard import JOB
from rankscope.agent.health.api.openapi import openapi
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.agent.health.api.served_job import ServedJob
from rankscope.agent.health.api.stream import Streams
from rankscope.agent.health.api.table import JSON, LONGEST_TEXT, TABLE, Row
from rankscope.agent.health.connections import FIXED_HEADERS, grant_time, problem

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answering = Callable[[web.Request, ServedJob], Awaitable[bytes]]

_STATUS_OF: Final = {
    "busy": HTTPStatus.CONFLICT,
    "bad_request": HTTPStatus.UNPROCESSABLE_ENTITY,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "failed": HTTPStatus.INTERNAL_SERVER_ERROR,
}
_RETRY_AFTER: Final = 5
_SPARE_SECONDS: Final = 15.0
_HANDING_ON_SECONDS: Final = 120.0
"""For the agents of 256 nodes, 16 at a time, none of which answers."""
_MOST_DIGITS: Final = 4


class _BadRequestError(Exception):
    """What was asked is not allowed."""

    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(why)
        self.status = status


def add_api_routes(app: web.Application, streams: Streams) -> None:
    """Add all rows of the table; the caller guards them."""
    answering: dict[str, Answering] = {
        "job": _job,
        "ranks": _ranks,
        "incidents": _incidents,
        "incident": _incident,
        "events": _events,
        "restarts": _restarts,
        "settings": _settings,
        "change_settings": _change_settings,
        "analyze": _analyze,
        "page": _page,
        "openapi": _openapi,
    }
    for row in TABLE:
        if row.name == "stream":
            app.router.add_get(row.path, _streaming(row, streams), allow_head=False)
        else:
            app.router.add_route(row.method, row.path, _handler(row, answering[row.name]))
            if row.method == "GET":
                app.router.add_route("HEAD", row.path, _handler(row, answering[row.name]))


def _handler(row: Row, answering: Answering) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            _check_query(request, row)
            body = await answering(request, request[JOB])
        except _BadRequestError as refusal:
            return problem(refusal.status, str(refusal))
        except NoAnswerError as refusal:
            return problem(refusal.status, refusal.why, headers=_retry(refusal.status, refusal.retry_after))
        except ControlError as error:
            return _refused(error.refusal)
        return web.Response(body=body, content_type=JSON, headers=FIXED_HEADERS)

    return answer


def _streaming(row: Row, streams: Streams) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            _check_query(request, row)
        except _BadRequestError as refusal:
            return problem(refusal.status, str(refusal))
        return await streams.answer(request, request[JOB])

    return answer


def _refused(refusal: Refusal) -> web.Response:
    status = _STATUS_OF[refusal.kind]
    return problem(status, refusal.detail, headers=_retry(status, refusal.retry_after))


def _retry(status: int, seconds: int | None) -> dict[str, str]:
    if seconds is None and status == HTTPStatus.CONFLICT:
        seconds = _RETRY_AFTER
    return {} if seconds is None else {"Retry-After": str(seconds)}


# What a request says.


def _check_query(request: web.Request, row: Row) -> None:
    allowed = {one.name for one in row.parameters if one.where == "query"}
    for name in request.query:
        if name == "token":
            raise _BadRequestError("the token goes into the header Authorization, never into a URL")
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise _BadRequestError(f"a parameter that {row.path} does not have; it has: {known}")
        if len(request.query.getall(name)) > 1:
            raise _BadRequestError(f"{name}: given twice")
        if not 1 <= len(request.query[name]) <= LONGEST_TEXT:
            raise _BadRequestError(f"{name}: 1 to {LONGEST_TEXT} characters expected")


def _limit(request: web.Request) -> int:
    text = request.query.get("limit")
    if text is None:
        return questions.MOST_EVENTS
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    if not is_number or not 1 <= int(text) <= questions.MOST_EVENTS:
        raise _BadRequestError(f"limit: a number from 1 to {questions.MOST_EVENTS} expected")
    return int(text)


def _of_node(request: web.Request) -> bool:
    of = request.query.get("of")
    if of not in (None, "node"):
        raise _BadRequestError("of: node expected")
    return of is not None


async def _body(request: web.Request, kind: type[T], *, default: T | None = None) -> T:
    data = await request.read()
    if not data and default is not None:
        return default
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        raise _BadRequestError("a compressed body is not read", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if request.content_type != JSON:
        raise _BadRequestError(f"{hdrs.CONTENT_TYPE}: {JSON} expected", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _BadRequestError(str(error), HTTPStatus.UNPROCESSABLE_ENTITY) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadRequestError(f"the body is no JSON: {error}") from None


# What is answered.


async def _job(_request: web.Request, job: ServedJob) -> bytes:
    return await job.reading.ask(questions.ReadJob(job.offer.node, job.phase))


async def _ranks(request: web.Request, job: ServedJob) -> bytes:
    return msgspec.json.encode(await job.ranks.answer(of_node=_of_node(request)))


async def _incidents(_request: web.Request, job: ServedJob) -> bytes:
    return await job.reading.ask(questions.ReadIncidents(await job.unwritten()))


async def _incident(request: web.Request, job: ServedJob) -> bytes:
    incident = request.match_info["id"]
    if len(incident) > LONGEST_TEXT:
        raise _BadRequestError(f"id: at most {LONGEST_TEXT} characters expected")
    return await job.reading.ask(questions.ReadIncident(incident, await job.unwritten()))


async def _events(request: web.Request, job: ServedJob) -> bytes:
    since = request.query.get("since", "")
    return await job.reading.ask(questions.ReadEvents(since, _limit(request), await job.unwritten()))


async def _restarts(_request: web.Request, job: ServedJob) -> bytes:
    return await job.reading.ask(questions.ReadRestarts())


async def _page(request: web.Request, job: ServedJob) -> bytes:
    incident = request.query.get("incident", "")
    return await job.reading.ask(questions.ReadPage(incident, await job.unwritten()))


async def _openapi(_request: web.Request, _job: ServedJob) -> bytes:
    return _document()


@functools.cache
def _document() -> bytes:
    return msgspec.json.encode(openapi())


async def _settings(_request: web.Request, job: ServedJob) -> bytes:
    try:
        told = await job.control.change_settings({})
    except ControlError:
        return await job.reading.ask(questions.ReadSettings(job.offer.node))
    return msgspec.json.encode(answers.SettingsBody(job.name, live=True, settings=told.settings))


async def _change_settings(request: web.Request, job: ServedJob) -> bytes:
    of_node = _of_node(request)
    asked = await _body(request, answers.SettingsChange)
    # Here first: what is refused here is told to nobody else.
    told = await job.control.change_settings(asked.change, by=request.remote or "")
    elsewhere: dict[str, str] = {}
    if not of_node:
        grant_time(request, _HANDING_ON_SECONDS)
        elsewhere = await job.change_settings_elsewhere(asked.change)
    return msgspec.json.encode(answers.SettingsChanged(job.name, told.changed, told.settings, elsewhere))


async def _analyze(request: web.Request, job: ServedJob) -> bytes:
    await _body(request, answers.AnalyzeRequest, default=answers.AnalyzeRequest())
    as_page = request.query.get("as")
    if as_page not in (None, "page"):
        raise _BadRequestError("as: page expected")
    grant_time(request, ANALYZE_SECONDS + _SPARE_SECONDS)
    try:
        diagnosis = await job.control.analyze(by=request.remote or "")
        if as_page:
            return await job.reading.ask(questions.DrawPage(msgspec.Raw(diagnosis)))
        return diagnosis
    finally:
        grant_time(request)
