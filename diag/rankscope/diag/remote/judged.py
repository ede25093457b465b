"""What ``diag analyze URL`` explains: a running job is looked at by its agent, else incidents are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from rankscope.diag.errors import UsageError
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.wanted import Wanted
from rankscope.diag.model import Diagnosis
from rankscope.diag.remote.client import AgentClient, quoted, token_from

_ANALYZE_SECONDS: Final = 90.0
"""That an agent may take: two looks, and what tools do not answer."""
_STORED_SECONDS: Final = 30.0
MOVING: Final = frozenset({"running", "restarting"})


class _Job(msgspec.Struct, frozen=True):
    job: str
    phase: str


class _Entry(msgspec.Struct, frozen=True):
    id: str


class _Incidents(msgspec.Struct, frozen=True):
    incidents: tuple[_Entry, ...] = ()


class _Incident(msgspec.Struct, frozen=True):
    diagnosis: Diagnosis


def judge_remote(url: str, wanted: Wanted) -> Sequence[Judged]:
    """The diagnosis of a job behind an agent's URL, or its stored ones.

    Args:
        url: of the agent.
        wanted: what, and how.

    Raises:
        UsageError: no incident is stored, the token is missing or wrong, or a flag is for jobs of this host.
        RemoteError: no answer.
    """
    _refuse_local_flags(wanted)
    client = AgentClient(url, token_from(wanted.token_file), timeout=_STORED_SECONDS)
    if wanted.all or wanted.incident:
        return _stored(client, wanted)
    job = client.get("/v1/job", _Job)
    if job.phase not in MOVING:
        return _stored(client, wanted)
    return [Judged(looked_at(client, wanted, job=job.job))]


def agent_at(url: str, token_file: str | None, *, timeout: float) -> AgentClient | None:
    """An agent that has workers to look at, ``None`` where it has none just now.

    Args:
        url: where it says it is.
        token_file: file with the job's token, ``None``: the environment has it.
        timeout: seconds that it may take to say so.

    Raises:
        UsageError: the token is missing or wrong.
        RemoteError: no answer.
    """
    client = AgentClient(url, token_from(token_file), timeout=timeout)
    return client if client.get("/v1/job", _Job).phase in MOVING else None


def looked_at(client: AgentClient, wanted: Wanted, *, job: str) -> Diagnosis:
    """Have a job looked at by an agent; in a job of several nodes it has all of them look.

    Raises:
        UsageError: the token is missing or wrong.
        RemoteError: no answer, or a refusal.
    """
    if wanted.say_begun is not None:
        wanted.say_begun(f"job {job} is looked at by its agent at {client.url}")
    return client.post("/v1/analyze", Diagnosis, timeout=_ANALYZE_SECONDS)


def _refuse_local_flags(wanted: Wanted) -> None:
    for flag in local_flags(wanted):
        raise UsageError(f"{flag}: an agent looks with its own settings; leave it out for a URL")


def local_flags(wanted: Wanted) -> list[str]:
    """What is wanted that only a look from here can give."""
    given = {
        "--samples": wanted.samples,
        "--native": wanted.native,
        "--locals": wanted.locals,
        "--catalogue": wanted.catalogue,
        "--user-code": wanted.user_code,
    }
    return [flag for flag, value in given.items() if value]


def _stored(client: AgentClient, wanted: Wanted) -> Sequence[Judged]:
    listed = [one.id for one in client.get("/v1/incidents", _Incidents).incidents]
    ids = listed if wanted.all else [wanted.incident] if wanted.incident else listed[-1:]
    if not ids:
        raise UsageError(f"{client.url}: no incident of the job is stored")
    found = [client.get(f"/v1/incidents/{quoted(one)}", _Incident).diagnosis for one in ids]
    if not wanted.quiet:
        wanted.say(f"stored by the agent at {client.url}: {', '.join(ids)}")
    return [Judged(one) for one in found]
