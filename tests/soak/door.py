"""Where an agent is asked, by what its records say: the open paths, and those for which a token is needed."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.jobs import Job

PATHS: Final = ("/livez", "/readyz", "/health", "/metrics")
_ASK_TIMEOUT: Final = 90.0


@dataclass(frozen=True, slots=True)
class Door:
    """Where an agent is asked.

    Attributes:
        open: host and port of the open paths.
        api: of the token paths, ``None`` when this agent has none; token opens them.
    """

    open: tuple[str, int]
    api: tuple[str, int] | None = None
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """What opens the token paths."""
        return {"Authorization": f"Bearer {self.token}"}


def door_of(job: Job) -> Door:
    """What the records of a job say of where its agent is asked."""
    (path,) = job.records.path.glob("nodes/*/agent.json")
    said = json.loads(path.read_text())
    address = (said["host"], said["port"])
    api = str(said.get("api") or "")
    token = Path(said.get("token_file") or job.records.path / "token")
    if not api or not token.exists():
        return Door(address)
    host, _, port = api.removeprefix("http://").rstrip("/").rpartition(":")
    return Door(address, (host.strip("[]"), int(port)), token.read_text().strip())


def paths_there(address: tuple[str, int]) -> list[str]:
    """Those of ``PATHS`` that this agent knows."""
    return [path for path in PATHS if ask(address, "GET", path)[0] != HTTPStatus.NOT_FOUND]


def ask(
    address: tuple[str, int], method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """One request on a connection of its own; status and body of the answer."""
    connection = http.client.HTTPConnection(*address, timeout=_ASK_TIMEOUT)
    with contextlib.closing(connection):
        body = b"{}" if method == "POST" else None
        kind = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, body=body, headers={**kind, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
