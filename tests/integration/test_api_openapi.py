"""The OpenAPI document against the server: whatever is asked as it says is answered as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import validate
from schemathesis.checks import CHECKS
from tests.api_control import a_control
from tests.api_factory import TOKEN, ServedByHand, a_served_job

from rankscope.agent.health.api.openapi import openapi
from rankscope.agent.health.api.table import TABLE

SCHEMA = schemathesis.openapi.from_dict(openapi())
# The stream does not end: test_api_stream has it. A document in which nothing is chosen has nothing to vary.
ASKED = SCHEMA.exclude(path="/v1/stream")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    path = tmp_path_factory.mktemp("openapi")
    with a_control(path / "control") as control, a_served_job(path, control=control.path) as server:
        yield server


def test_the_document_is_openapi_and_is_what_the_server_gives(served: ServedByHand) -> None:
    found = served.ask("/v1/openapi.json").json()
    validate(found)
    assert found == json.loads(json.dumps(openapi()))
    assert found["openapi"].startswith("3.1")
    assert {(row.method.lower(), row.path) for row in TABLE} == {
        (method, path) for path, operations in found["paths"].items() for method in operations
    }


@ASKED.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate],
)
def test_every_answer_is_one_that_the_document_has(case: Any, served: ServedByHand) -> None:
    host, port = served.address
    response = case.call(
        base_url=f"http://{host}:{port}",
        headers={"Authorization": f"Bearer {TOKEN}"} | dict(case.headers or {}),
    )
    # Names of settings are the agent's: the document does not list them, and it refuses what it has not.
    excluded = [CHECKS.get_one("positive_data_acceptance")] if case.method == "PATCH" else []
    # It asks again with wrong tokens, faster than a refused peer may: test_api_hostile has those.
    excluded.append(CHECKS.get_one("ignored_auth"))
    case.validate_response(response, excluded_checks=excluded)
