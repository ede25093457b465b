"""The OpenAPI 3.1 document, made from the table and the structs of the answers. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

from rankscope.agent.health.api.answers import Problem
from rankscope.agent.health.api.table import EVENT_STREAM, EVERYWHERE, JSON, TABLE, Parameter, Row
from rankscope.diag.report.html.document import Page

PROBLEM_JSON: Final = "application/problem+json"
VERSION: Final = "1"
_REFERENCE: Final = "#/components/schemas/{name}"
_RETRY: Final = (409, 429, 503)

Document = dict[str, Any]


def openapi() -> Document:
    """The document as plain JSON."""
    structs: list[type[msgspec.Struct]] = [Problem, Page]
    structs += [kind for row in TABLE for kind in (row.answer, row.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        structs, schema_hook=_anything, ref_template=_REFERENCE
    )
    by_type = dict(zip(structs, schemas, strict=True))
    paths: dict[str, Document] = {}
    for row in TABLE:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, by_type)
    document: Document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Rankscope",
            "version": VERSION,
            "description": "The records of one job, as one of its agents has them.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The job's token."},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "rankscope-...",
                    "description": "What `/?token=` gives a browser; its name is another one for each job.",
                },
            },
        },
    }
    plain: Document = msgspec.to_builtins(document)  # defaults that are tuples become lists
    return plain


def _anything(kind: type) -> Document:
    """The schema of what may be any JSON: the data of an event.

    Raises:
        NotImplementedError: it is another type that JSON schema does not have.
    """
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError


def _operation(row: Row, schemas: dict[type[msgspec.Struct], Document]) -> Document:
    statuses = sorted({*EVERYWHERE, *row.problems})
    operation: Document = {
        "operationId": row.name,
        "summary": row.about,
        "responses": {
            "200": {"description": "OK", "content": _content(row, schemas)},
            **{str(status): _problem(status, schemas[Problem]) for status in statuses},
        },
    }
    if row.parameters:
        operation["parameters"] = [_parameter(one) for one in row.parameters]
    if row.body is not None:
        operation["requestBody"] = {
            "required": row.body_required,
            "content": {JSON: {"schema": schemas[row.body]}},
        }
    return operation


def _content(row: Row, schemas: dict[type[msgspec.Struct], Document]) -> Document:
    if row.content_type == EVENT_STREAM:
        return {EVENT_STREAM: {"schema": {"type": "string"}}}
    if row.answer is None:
        return {JSON: {"schema": {"type": "object"}}}
    schema = schemas[row.answer]
    if any(one.name == "as" for one in row.parameters):
        schema = {"anyOf": [schema, schemas[Page]]}
    return {JSON: {"schema": schema}}


def _problem(status: int, schema: Document) -> Document:
    problem: Document = {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM_JSON: {"schema": schema}},
    }
    if status in _RETRY:
        problem["headers"] = {
            "Retry-After": {
                "description": "Seconds after which it may be worth asking again.",
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    return problem


def _parameter(one: Parameter) -> Document:
    return {
        "name": one.name,
        "in": one.where,
        "description": one.about,
        "required": one.where == "path",
        "schema": one.schema,
    }
