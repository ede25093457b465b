"""The table of the API: one row a path. The routes and the OpenAPI document are made from it, so they agree.

Values only: what a row's answer is made of stands in ``routes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from rankscope.agent.health.api import answers
from rankscope.agent.health.api.questions import MOST_EVENTS
from rankscope.diag.model import Diagnosis
from rankscope.diag.report.html.live_data import LivePage

Method = Literal["GET", "POST", "PATCH"]
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, a path or a header.

    Attributes:
        schema: JSON schema of its value.
    """

    name: str
    where: Literal["query", "path", "header"]
    about: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """One path with one method.

    Attributes:
        name: of the operation, and of what answers it.
        about: a line for the document.
        answer: struct of the answer; ``None`` for another kind of answer.
        content_type: of the answer.
        parameters: what may be asked with it.
        body: struct of the request's body, ``None`` for none.
        body_required: whether it must be there.
        problems: statuses that it has beyond those that all have.
    """

    method: Method
    path: str
    name: str
    about: str
    answer: type[msgspec.Struct] | None
    content_type: str = JSON
    parameters: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    body_required: bool = False
    problems: tuple[int, ...] = ()


_TEXT: Final[dict[str, object]] = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
_INCIDENT: Final = Parameter("id", "path", "the incident's id", _TEXT)
_SHOWN: Final = Parameter("incident", "query", "the incident to show; without: the last one", _TEXT)
_SINCE: Final = Parameter(
    "since", "query", "those after the event of this id, or from this time (ISO 8601) on; without: all", _TEXT
)
_LIMIT: Final = Parameter(
    "limit", "query", "how many at most", {"type": "integer", "minimum": 1, "maximum": MOST_EVENTS}
)
_LAST: Final = Parameter(
    "Last-Event-ID", "header", "go on behind this event; unknown: all of them, after `event: reset`", _TEXT
)
_AS: Final = Parameter(
    "as", "query", "`page`: the diagnosis as a report's document", {"type": "string", "enum": ["page"]}
)
_OF: Final = Parameter(
    "of", "query", "`node`: of the agent that answers alone", {"type": "string", "enum": ["node"]}
)

EVERYWHERE: Final = (400, 401, 403, 421, 429, 503)
"""Statuses that any path may answer: bad request, no or a wrong token, another page's cookie, another host's
name, too many questions, records that cannot be read now."""

TABLE: Final[tuple[Row, ...]] = (
    Row("GET", "/v1/job", "job", "The job: state, agents, counts.", answers.JobAnswer),
    Row("GET", "/v1/ranks", "ranks", "All ranks now.", answers.RanksAnswer, parameters=(_OF,)),
    Row("GET", "/v1/incidents", "incidents", "All incidents in short.", answers.IncidentsAnswer),
    Row(
        "GET",
        "/v1/incidents/{id}",
        "incident",
        "One incident: diagnosis and decision.",
        answers.IncidentAnswer,
        parameters=(_INCIDENT,),
        problems=(404,),
    ),
    Row(
        "GET",
        "/v1/events",
        "events",
        "Events of all nodes.",
        answers.EventsAnswer,
        parameters=(_SINCE, _LIMIT),
        problems=(404,),
    ),
    Row("GET", "/v1/restarts", "restarts", "All restarts, with their faults.", answers.RestartsAnswer),
    Row("GET", "/v1/settings", "settings", "Settings in force, without secrets.", answers.SettingsBody),
    Row(
        "PATCH",
        "/v1/settings",
        "change_settings",
        "Change settings of all nodes while the job runs; an event records it.",
        answers.SettingsChanged,
        parameters=(_OF,),
        body=answers.SettingsChange,
        body_required=True,
        problems=(413, 415, 422, 500),
    ),
    Row(
        "POST",
        "/v1/analyze",
        "analyze",
        "Take a pair of snapshots now and judge it; one at a time.",
        Diagnosis,
        parameters=(_AS,),
        body=answers.AnalyzeRequest,
        problems=(409, 413, 415, 422, 500),
    ),
    Row(
        "GET",
        "/v1/page",
        "page",
        "The document of the live page.",
        LivePage,
        parameters=(_SHOWN,),
        problems=(404,),
    ),
    Row(
        "GET",
        "/v1/stream",
        "stream",
        "Server-sent events: what is recorded, and the ranks when they changed.",
        None,
        content_type=EVENT_STREAM,
        parameters=(_LAST,),
    ),
    Row("GET", "/v1/openapi.json", "openapi", "This document.", None),
)
