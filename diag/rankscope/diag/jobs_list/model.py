"""The nouns of the list of jobs: what ``diag jobs --json`` prints. Frozen, plain, no behaviour."""

from __future__ import annotations

import msgspec

from rankscope.diag.history.state import JobState
from rankscope.diag.model import SCHEMA


class JobRow(msgspec.Struct, frozen=True):
    """One job.

    Attributes:
        state: how it stands; result is what came of it (``succeeded``, ``failed``, ``stopped by SIGTERM``),
            ``""`` unless it has ended.
        created: when it began, ended when it ended, heard when it left its last sign of life: ISO 8601 in
            UTC, ``None`` when not known.
        age: seconds since it began, ``None`` when that is not known.
        restarts: that it has had.
        world_size: ranks, 0 when not known.
        nodes: those that have records.
        verdict: of the newest incident, with its kind, culprits and id; ``None`` without incidents.
        incidents: how many are stored.
        notes: a sentence for each thing that is missing, or odd.
        path: of its folder.
    """

    job: str
    state: JobState
    result: str = ""
    created: str | None = None
    ended: str | None = None
    heard: str | None = None
    age: float | None = None
    restarts: int = 0
    world_size: int = 0
    nodes: tuple[str, ...] = ()
    verdict: str | None = None
    kind: str | None = None
    culprits: tuple[int, ...] = ()
    incident: str | None = None
    incidents: int = 0
    notes: tuple[str, ...] = ()
    path: str = ""
    schema: int = SCHEMA
