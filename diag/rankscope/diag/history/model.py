"""The nouns of a history: what ``diag history --json`` prints. Frozen, plain, no behaviour."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from rankscope.diag.model import SCHEMA
from rankscope.diag.store.launches import Cycle, RestartRecord, Stage

Cause = Stage | Literal["agent", "agent_gone", "not_running"]
OUTSIDE: Final[tuple[Cause, ...]] = ("agent", "agent_gone", "not_running")
"""What time goes into outside of cycles: the agent's own start and end; from the last that is known of an
agent that was killed to the next one; from an end that asked to be run again to the next start."""


class SettingInForce(msgspec.Struct, frozen=True):
    """One setting at the start of an agent.

    Attributes:
        value: as text.
        source: where it came from: a flag, a variable, a file, ``default``; ``""`` when not recorded.
    """

    name: str
    value: str
    source: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A worker that ended by itself.

    Attributes:
        exit_code: as Python has it, ``None`` when unknown.
        is_root: whether it was the first of them in time.
        identity: of the root: the error without what changes from time to time.
    """

    time: str
    node: str
    rank: int
    exit_code: int | None
    message: str
    is_root: bool = False
    identity: str = ""
    incident: str | None = None


class Restart(msgspec.Struct, frozen=True):
    """One restart of the job, as one or more nodes have recorded it.

    Attributes:
        record: that of the node where something failed, else of the first.
        nodes: those that recorded it.
        faults: all that failed before it, on all nodes, in order of time.
        records: each node's own record, only when asked for all.
    """

    record: RestartRecord
    nodes: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    records: tuple[RestartRecord, ...] = ()


class Moment(msgspec.Struct, frozen=True):
    """Something that happened, in words.

    Attributes:
        type: the event's, without ``rankscope.``; ``agent.gone`` for an agent that left no last word.
        count: how often the same came, on all nodes; last is when it came last.
    """

    time: str
    node: str
    type: str
    text: str
    incident: str | None = None
    count: int = 1
    last: str = ""
    nodes: tuple[str, ...] = ()


class Spent(msgspec.Struct, frozen=True):
    """Where the time of one node went: a cause, and how much; all of a node add up to its wall time."""

    node: str
    cause: Cause
    seconds: float


class JobHistory(msgspec.Struct, frozen=True):
    """What a job has been through.

    Attributes:
        created: when it began, ended when it ended; ISO 8601, ``None`` while it runs or when not known.
        asked_nodes: ``MIN:MAX`` as asked for; nodes those that have records.
        wall: seconds from begin to end, of the node that was there longest; to the last that is known of it
            when the end is not.
        lost: of these, what was not training.
        earlier: jobs of the same run id before this one that are not shown.
        warnings: what is missing from this history, or could not be read.
    """

    job: str
    created: str | None
    ended: str | None
    result: str
    command: tuple[str, ...]
    asked_nodes: str
    nodes: tuple[str, ...]
    world_size: int
    wall: float
    lost: float
    spent: tuple[Spent, ...]
    cycles: tuple[Cycle, ...]
    restarts: tuple[Restart, ...]
    faults: tuple[Fault, ...]
    moments: tuple[Moment, ...]
    settings: tuple[SettingInForce, ...]
    earlier: int = 0
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA
