"""What is recorded of launches: a cycle each, and the restarts between them (FAULT_TOLERANCE.md).

Plain structs, stored as events (``cycle.ended``, ``restart``): fields may be added (with a default), none
renamed or removed.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from rankscope.diag.model import SCHEMA

Stage = Literal[
    "rendezvous",
    "start",
    "first_step",
    "training",
    "hang_unnoticed",
    "collection",
    "analysis",
    "stopping",
]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""The stages of a cycle, in the order in which they come; they add up to its wall time."""


class RestartRecord(msgspec.Struct, frozen=True):
    """One restart of a job (FAULT_TOLERANCE.md, "Records and notices").

    Attributes:
        restarts: how many restarts the job has had, this one included.
        restart_time: when it was decided (ISO 8601, UTC).
        node_name: node whose record this is.
        instance_name: what failed, or hung: ``rank 2``, ``ranks 0-1``; ``""`` when nobody is to blame.
        error_code: exit code of the rank that failed first, as Python has it (``-9``), else the verdict.
        error_message: the one line that a person should read.
        error_source: where it was read (``log``, ``error file``), or which incident has the evidence.
        reason: why it was decided, a sentence.
        result: ``running`` when workers ran again, else what became of it.
        duration: seconds from the decision to running workers, ``None`` while under way.
        identity: the error without what changes from time to time (addresses, pids, ranks); the same error is
            the same text. ``""`` when nothing failed.
        lost: seconds from the last progress before it until workers ran again; their first step comes later.
        is_counted: whether it is one of the restarts allowed; a change of the membership is not.
        faults: ranks that failed before it, victims included.
        worker: the rank that was started again alone (Async), ``None`` for all workers.
    """

    restarts: int
    restart_time: str
    node_name: str
    instance_name: str
    error_code: str
    error_message: str
    error_source: str
    reason: str
    result: str = ""
    duration: float | None = None
    incident: str | None = None
    identity: str = ""
    lost: float | None = None
    is_counted: bool = True
    faults: tuple[int, ...] = ()
    worker: int | None = None
    schema: int = SCHEMA


class Cycle(msgspec.Struct, frozen=True):
    """One launch of the workers on one node, and what its time went into. Durations in seconds.

    The eight stages add up to ``duration``; all of them are whole milliseconds of a monotonic clock.

    Attributes:
        number: of the cycle on this node, from 1; an agent that is started again counts on.
        began: when its rendezvous began (ISO 8601, UTC, by the node's wall clock).
        ended: when it ended, ``None`` while it runs.
        restart_count: restarts before it.
        result: ``restarted``, ``succeeded``, ``failed``, ``stopped by SIGTERM``, ``cut off`` (the agent was
            killed: what came after its last event is not in any stage), ``running``.
        reason: why it ended, a sentence.
        rendezvous: waiting for the other nodes; start: starting the workers.
        first_step: running, and nothing has progressed yet; training: until the last progress.
        hang_unnoticed: from the last progress to the suspicion.
        collection: taking evidence; analysis: from evidence to the decision, with the wait for the limit at
            which a hang is acted on.
        stopping: ending the workers, and what comes until the next rendezvous begins.
        steps: optimizer steps of the rank that made most.
        step: number that the script gave its last step, ``None`` when it gives none.
    """

    number: int
    node: str
    began: str
    ended: str | None = None
    duration: float = 0.0
    restart_count: int = 0
    world_size: int = 0
    ranks: tuple[int, ...] = ()
    result: str = ""
    reason: str = ""
    incident: str | None = None
    rendezvous: float = 0.0
    start: float = 0.0
    first_step: float = 0.0
    training: float = 0.0
    hang_unnoticed: float = 0.0
    collection: float = 0.0
    analysis: float = 0.0
    stopping: float = 0.0
    steps: int = 0
    step: int | None = None
    schema: int = SCHEMA
