"""The nouns of the API: what each path answers. Plain structs; the OpenAPI document is made from them.

Fields may be added (with a default), none renamed or removed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from rankscope.agent.control.messages import Change, InForce, Value
from rankscope.diag.history.model import Restart
from rankscope.diag.history.state import JobState
from rankscope.diag.model import (
    SCHEMA,
    Action,
    Confidence,
    Decision,
    Diagnosis,
    Kind,
    RankState,
    Severity,
    Verdict,
)
from rankscope.diag.store.events import Event


class Problem(msgspec.Struct, frozen=True):
    """Why there is no answer (RFC 9457).

    Attributes:
        type: always ``about:blank``: the title says what the status says.
        detail: one line for a person, may be empty.
    """

    type: str
    title: str
    status: int
    detail: str = ""


class NodeEntry(msgspec.Struct, frozen=True):
    """One agent of the job, as its ``agent.json`` has it.

    Attributes:
        host: where its probes are answered, with ``port``; ``""`` and 0 when nowhere.
        api: URL at which its records can be asked for, ``""`` when nowhere.
        beside: whether it is a ``diag watch``, which launched nothing.
    """

    node: str
    pid: int
    phase: str
    restart_count: int = 0
    host: str = ""
    port: int = 0
    api: str = ""
    ranks: tuple[int, ...] = ()
    beside: bool = False


class JobAnswer(msgspec.Struct, frozen=True):
    """``/v1/job``.

    Attributes:
        node: name of the node that answers.
        phase: of its agent, now.
        state: of the job, by what is stored of it.
        created: when it began, ISO 8601, ``None`` when not known; ended likewise, ``None`` while it runs.
        result: what came of it, ``""`` while it runs.
        command: what is trained.
        asked_nodes: ``MIN:MAX``.
        nodes: all agents with records.
        restarts: number of restarts; incidents of incidents.
        last_incident: id of the newest one.
        warnings: what of the records is missing or cannot be read.
    """

    job: str
    node: str
    phase: str
    state: JobState
    created: str | None
    ended: str | None
    result: str
    command: tuple[str, ...]
    asked_nodes: str
    world_size: int
    nodes: tuple[NodeEntry, ...] = ()
    restarts: int = 0
    incidents: int = 0
    last_incident: str | None = None
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA


class SuspicionNow(msgspec.Struct, frozen=True):
    """Why a hang is suspected, and of which ranks."""

    reason: str
    ranks: tuple[int, ...] = ()


class RankEntry(msgspec.Struct, frozen=True):
    """One rank.

    Attributes:
        step: optimizer steps since its process started, the script's own number when it has no optimizer;
            ``None`` when no step was ever seen.
        seconds_since_progress: since its last step, ``None`` before the first, and when not known.
        steps_per_second: over the last seconds, ``None`` when not known.
        where: in an incident that holds, where the look at it found the rank; else what the rank told of
            itself (stage, collective under way, exception); ``""`` when neither says.
        source: ``agent``: the agent of its node says so; ``records``: it is what that one has stored.
    """

    rank: int
    node: str
    local_rank: int
    pid: int
    state: RankState
    step: int | None = None
    seconds_since_progress: float | None = None
    steps_per_second: float | None = None
    where: str = ""
    source: Literal["agent", "records"] = "agent"


class RanksAnswer(msgspec.Struct, frozen=True):
    """``/v1/ranks``, and ``event: ranks`` of the stream. Sorted by rank.

    Attributes:
        time: of the answer, ISO 8601, UTC.
        phase: of the agent that answers.
        suspected: ``None`` while nothing is suspected.
    """

    job: str
    time: str
    phase: str
    world_size: int
    restart_count: int
    suspected: SuspicionNow | None
    ranks: tuple[RankEntry, ...] = ()
    schema: int = SCHEMA


class IncidentEntry(msgspec.Struct, frozen=True):
    """One incident in short.

    Attributes:
        action: what was decided, ``None`` when nothing was (yet).
        stored: whether it is on disk; an agent that cannot write keeps the last ones in memory.
    """

    id: str
    time: str
    verdict: Verdict
    kind: Kind
    severity: Severity
    confidence: Confidence
    culprits: tuple[int, ...]
    nodes: tuple[str, ...]
    summary: str
    action: Action | None = None
    stored: bool = True


class IncidentsAnswer(msgspec.Struct, frozen=True):
    """``/v1/incidents``, oldest first; warnings for those that cannot be read."""

    job: str
    incidents: tuple[IncidentEntry, ...] = ()
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA


class IncidentAnswer(msgspec.Struct, frozen=True):
    """``/v1/incidents/<id>``; ``decision`` is ``None`` when nothing was decided (yet)."""

    id: str
    diagnosis: Diagnosis
    decision: Decision | None = None
    stored: bool = True
    schema: int = SCHEMA


class EventsAnswer(msgspec.Struct, frozen=True):
    """``/v1/events``, in the order in which this agent read them.

    Attributes:
        more: whether there are further ones: ask again with ``since`` = the last one's id.
        waiting: how many of the last ones are not on disk yet.
        skipped: how many lines of the logs are no event: torn by a kill or a full disk, or longer than 8 MiB.
    """

    job: str
    events: tuple[Event, ...] = ()
    more: bool = False
    waiting: int = 0
    skipped: int = 0
    schema: int = SCHEMA


class RestartsAnswer(msgspec.Struct, frozen=True):
    """``/v1/restarts``, oldest first; warnings for what is missing."""

    job: str
    restarts: tuple[Restart, ...] = ()
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA


class SettingsBody(msgspec.Struct, frozen=True):
    """``GET /v1/settings``.

    Attributes:
        live: whether the agent itself said so; else it is what was recorded at its start.
        settings: by the option's name, without secrets.
    """

    job: str
    live: bool
    settings: dict[str, InForce] = {}
    schema: int = SCHEMA


class SettingsChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``PATCH /v1/settings`` takes.

    Attributes:
        change: new values by the option's name (``job-hang-interval``), all of them or none are taken.
    """

    change: Annotated[dict[str, Value], msgspec.Meta(min_length=1, max_length=64)]


class SettingsChanged(msgspec.Struct, frozen=True):
    """What ``PATCH /v1/settings`` answers: those that have another value now, and all that are in force.

    Attributes:
        elsewhere: by each other node that was told: ``changed``, or why it is not.
    """

    job: str
    changed: dict[str, Change] = {}
    settings: dict[str, InForce] = {}
    elsewhere: dict[str, str] = {}
    schema: int = SCHEMA


class AnalyzeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``POST /v1/analyze`` takes: an empty object, or no body."""
