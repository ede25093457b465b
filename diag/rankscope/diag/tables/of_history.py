"""Tables made of a job's history and events: jobs, restarts, faults, cycles, spent, events. Pure."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, cast

import msgspec

from rankscope.diag.history.model import JobHistory
from rankscope.diag.history.moments import text_of
from rankscope.diag.store.events import Event, clock_seconds, unix_time
from rankscope.diag.tables.declare import (
    Row,
    Rows,
    Table,
    integer,
    integers,
    maybe_integer,
    moment,
    number,
    seconds,
    text,
    texts,
    truth,
)
from rankscope.diag.tables.of_incidents import INCIDENTS
from rankscope.diag.tables.records import StoredJob

JOB = text("job", "run id; where a job's folder has another name (`run-7~2`), that name")
JOBS = Table(
    "jobs",
    "a job",
    "`diag history JOB --json`, state and result as `diag jobs` has them; also `open_job(JOB).job`",
    (
        JOB,
        text("state", "`running`, `ended`, `killed`, `silent`, `damaged` ([cli](cli.md#diag-jobs))"),
        text("result", "of one that ended: `succeeded`, `failed`, `stopped by SIGTERM`, ...; else empty"),
        moment("started", "when it began"),
        moment("ended", "when it ended"),
        seconds("wall", "from begin to end, of the node that was there longest"),
        seconds("lost", "of these, what was not training"),
        text("asked_nodes", "`MIN:MAX` as asked for"),
        texts("nodes", "nodes that have records"),
        integer("world_size", "ranks, 0 when not known"),
        integer("restarts", "restarts of the job, those not counted against its limit included"),
        integer("incidents", "rows of `incidents()`"),
        text("verdict", "of the last incident"),
        text("summary", "of the last incident"),
        texts("command", "the training command"),
        integer("earlier", "jobs of the same run id before it, which are not shown"),
        text("folder", "where its records lie"),
        integer("warnings", "how many there are about it"),
    ),
    dated="started",
)
RESTARTS = Table(
    "restarts",
    "a restart of the job: one for what all nodes did together",
    "`restarts` of `diag history JOB --json` (`record` and `nodes`)",
    (
        moment("restart_time", "when it was decided"),
        integer("restarts", "how many restarts the job has had, this one included"),
        text("node_name", "node whose record it is"),
        text("instance_name", "what failed, or hung: `rank 2`, `ranks 0-1`"),
        text("error_code", "exit code of the rank that failed first (`-9`), else the verdict"),
        text("error_message", "the one line that a person should read"),
        text("error_source", "where it was read"),
        text("reason", "why it was decided, a sentence"),
        text("result", "`running` when workers ran again, else what became of it"),
        seconds("duration", "from the decision to running workers; NaN while under way"),
        text("incident", "whose evidence it rests on"),
        text("identity", "the error without what changes from time to time; empty when nothing failed"),
        seconds("lost", "from the last progress before it to running workers; their first step is later"),
        truth("is_counted", "whether it is one of the restarts allowed"),
        integers("faults", "ranks that failed before it, victims included"),
        maybe_integer("worker", "rank that was started again alone (Async)"),
        texts("nodes", "nodes that recorded it"),
    ),
    dated="restart_time",
)
FAULTS = Table(
    "faults",
    "a worker that ended by itself",
    "`faults` of `diag history JOB --json`, those behind a restart and those that none followed",
    (
        moment("time", "when it was seen"),
        text("node", "its node"),
        maybe_integer("rank", "global rank"),
        maybe_integer("exit_code", "as Python has it (`-9`)"),
        text("message", "last line of its error"),
        truth("is_root", "whether it was the first of them in time"),
        text("identity", "of the root: the error without what changes from time to time"),
        text("incident", "id"),
        maybe_integer("restarts", "`restarts` of the restart that followed; `<NA>` for none"),
    ),
)
CYCLES = Table(
    "cycles",
    "one launch of the workers on one node",
    "`cycles` of `diag history JOB --json`; the eight stages add up to `duration`",
    (
        text("node", "node"),
        integer("number", "of the cycle on this node, from 1"),
        moment("began", "when its rendezvous began"),
        moment("ended", "when it ended; `NaT` while it runs"),
        seconds("duration", "all of it"),
        integer("restart_count", "restarts before it"),
        integer("world_size", "ranks of the job"),
        integers("ranks", "ranks on this node"),
        text("result", "`restarted`, `succeeded`, `failed`, `cut off`, `running`, ..."),
        text("reason", "why it ended, a sentence"),
        text("incident", "id"),
        seconds("rendezvous", "waiting for the other nodes"),
        seconds("start", "starting the workers"),
        seconds("first_step", "running, and nothing had progressed yet"),
        seconds("training", "until the last progress"),
        seconds("hang_unnoticed", "from the last progress to the suspicion"),
        seconds("collection", "taking evidence"),
        seconds("analysis", "from evidence to the decision"),
        seconds("stopping", "ending the workers, until the next rendezvous"),
        integer("steps", "optimizer steps of the rank that made most"),
        maybe_integer("step", "number that the script gave its last step"),
    ),
    dated="began",
)
SPENT = Table(
    "spent",
    "a cause, and the time of a node that went into it",
    "`spent` of `diag history JOB --json`; all of a node add up to its wall time",
    (
        text("node", "node"),
        text(
            "cause",
            "a stage of its cycles, or `agent` (its own start and end), `agent_gone` (killed, until the "
            "next), `not_running`",
        ),
        seconds("seconds", "spent in it"),
    ),
    dated="",
)
EVENTS = Table(
    "events",
    "an event",
    "`events.jsonl` of each node, in the order of its lines, node by node",
    (
        moment("time", "by the node's wall clock, which may be set back"),
        text("node", "node that saw it"),
        text("type", "without `rankscope.` ([files](files.md#eventsjsonl))"),
        text("subject", "what it is about: an incident's id"),
        maybe_integer("rank", "rank it is about, where it names one"),
        text("text", "in words, as `diag history --all` shows it"),
        maybe_integer("sequence", "number of the event on its node"),
        text("boot", "boot of the node; `clock` compares within one"),
        number("clock", "the node's monotonic clock: durations are its differences", "s"),
        text("id", "id"),
        text("data", "what it carries, as JSON"),
    ),
)
_RESTART: Final = tuple(name for name in RESTARTS.names if name != "nodes")
_restart_values = operator.attrgetter(*_RESTART)
_cycle_values = operator.attrgetter(*CYCLES.names)
_fault_values = operator.attrgetter(*FAULTS.names[:-1])
_spent_values = operator.attrgetter(*SPENT.names)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job in one row: what ``open_job(JOB).job`` is. Fields as the columns of ``jobs()``, times in UTC."""

    job: str
    state: str | None
    result: str
    started: datetime | None
    ended: datetime | None
    wall: float
    lost: float
    asked_nodes: str
    nodes: tuple[str, ...]
    world_size: int
    restarts: int
    incidents: int
    verdict: str | None
    summary: str | None
    command: tuple[str, ...]
    earlier: int
    folder: str
    warnings: int


def job_row(job: StoredJob, incidents: Sequence[Row]) -> Row:
    """The row of a job.

    Args:
        job: its records.
        incidents: its rows of ``incidents()``.
    """
    history = job.history
    last = dict(zip(INCIDENTS.names, incidents[-1], strict=True)) if incidents else {}
    return (
        job.name,
        job.state,
        job.result,
        history.created,
        job.ended,
        history.wall,
        history.lost,
        history.asked_nodes,
        history.nodes,
        history.world_size,
        len(history.restarts),
        len(incidents),
        last.get("verdict"),
        last.get("summary"),
        history.command,
        history.earlier,
        job.folder,
        len(job.warnings),
    )


def facts_of(row: Row) -> JobFacts:
    """The row of a job, as ``open_job(JOB).job`` has it."""
    values = dict(zip(JOBS.names, row, strict=True))
    values |= {name: _moment(values[name]) for name in ("started", "ended")}
    return JobFacts(**cast("dict[str, Any]", values))


def _moment(text: object) -> datetime | None:
    at = unix_time(text) if isinstance(text, str) else None
    return datetime.fromtimestamp(at, tz=timezone.utc) if at is not None else None


def restart_rows(history: JobHistory) -> Rows:
    """The rows of ``restarts()``."""
    for restart in history.restarts:
        yield (*_restart_values(restart.record), restart.nodes)


def fault_rows(history: JobHistory) -> Rows:
    """The rows of ``faults()``, in order of time."""
    behind = [(fault, restart.record.restarts) for restart in history.restarts for fault in restart.faults]
    for fault, restarts in (*behind, *((fault, None) for fault in history.faults)):
        row = _fault_values(fault)
        rank = row[_FAULT_RANK]
        yield (*row[:_FAULT_RANK], None if rank < 0 else rank, *row[_FAULT_RANK + 1 :], restarts)


_FAULT_RANK: Final = FAULTS.names.index("rank")


def cycle_rows(history: JobHistory) -> Rows:
    """The rows of ``cycles()``."""
    return map(_cycle_values, history.cycles)


def spent_rows(history: JobHistory) -> Rows:
    """The rows of ``spent()``."""
    return map(_spent_values, history.spent)


_NO_CLOCK: Final = (None, None)


def event_rows(nodes: Mapping[str, Sequence[Event]]) -> Rows:
    """The rows of ``events()``."""
    encode = msgspec.json.Encoder().encode
    for node, events in nodes.items():
        for event in events:
            rank = event.data.get("rank")
            boot, seconds = clock_seconds(event) or _NO_CLOCK
            yield (
                event.time,
                node,
                event.name,
                event.subject,
                rank if isinstance(rank, int) and rank >= 0 else None,
                text_of(event),
                event.number or None,
                boot,
                seconds,
                event.id,
                encode(event.data).decode(),
            )
