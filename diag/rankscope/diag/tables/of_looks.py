"""Tables made of stored snapshots: threads, steps, groups; and what ``collectives()`` is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rankscope.diag.tables.declare import (
    Row,
    Rows,
    Table,
    integer,
    maybe_integer,
    maybe_truth,
    moment,
    seconds,
    text,
    texts,
    truth,
)
from rankscope.diag.tables.looks import BriefRank, RawRank, RawThread, Stacks

THREADS = Table(
    "threads",
    "a thread of a rank, or of a child process of it, in a look",
    "both snapshots of each incident",
    (
        text("incident", "id"),
        text("look", "`a`, `b`"),
        moment("time", "when the rank was looked at"),
        integer("rank", "global rank"),
        text("node", "its node"),
        integer("pid", "process of the thread, 0 when unknown (dumps)"),
        truth("is_child", "whether that is a child process of the rank"),
        integer("thread_id", "the system's id, 0 when the tool did not know it"),
        text("thread", "its name"),
        truth("is_main", "whether it is its process's main thread"),
        maybe_truth("holds_gil", "whether it owned the GIL"),
        maybe_truth("active", "whether the tool saw it running"),
        maybe_truth("collecting", "whether it was collecting garbage"),
        truth("is_cut", "whether frames are missing because the dump ended there"),
        integer("depth", "frames"),
        text("leaf", "innermost frame, `function (file:line)`"),
        texts("stack", "all frames, leaf first, written as in `stacks()`"),
        text("source", "tool that gave the stacks of the rank"),
    ),
)
STEPS = Table(
    "steps",
    "how far a rank had come in a look",
    "`progress` of both snapshots of each incident: what the [progress page](files.md#the-run-time-folder) "
    "of the rank said at that moment. No page is stored between incidents: there is no row a step. How long "
    "steps took when they became slow is in `incidents()` (`since_step`, `step_seconds`), how many there "
    "were in `cycles()`",
    (
        text("incident", "id"),
        text("look", "`a`, `b`"),
        moment("time", "when the rank was looked at"),
        integer("rank", "global rank"),
        text("node", "its node"),
        integer("step", "optimizer steps since the worker started"),
        maybe_integer("user_step", "number the script gave its last step"),
        text("stage", "stage the script says it is in, empty for none"),
        integer("batches", "that data loaders have given to the script, at least"),
        seconds("since_step", "since its last step; NaN before the first"),
        seconds("since_beat", "since its probe's last beat; long while the GIL is held in C"),
        seconds("since_return", "since the script's end, of a process that waits for other threads"),
        moment("last_step", "when its last step was: `time` less `since_step`"),
    ),
)
COLLECTIVES = Table(
    "collectives",
    "an operation of a rank: a collective, a send or a receive",
    "the flight records in the snapshots of each incident, of each rank the newest. After a hang the newest "
    "64 operations of each rank and all that are open are kept, of a slow job 2,000: some seconds to minutes "
    "before the look, not the job's whole life. A job whose torch keeps no record has none",
    (
        text("incident", "id"),
        text("look", "`a`, `b`: the newest that has a record of the rank"),
        moment("time", "when the rank was looked at"),
        integer("rank", "global rank"),
        text("node", "its node"),
        text("group", "torch's name of the process group"),
        integer("seq", "number of the operation in the group, the same on every member"),
        text("op", "`all_reduce`, ..."),
        truth("is_p2p", "whether it is a send or receive"),
        truth("is_completed", "whether it has ended"),
        maybe_truth("is_started", "whether it was seen to run on the device (gloo does not tell)"),
        maybe_integer("peer", "the other rank of a send or receive"),
        moment("called", "when the rank called it, by the clock of its host"),
        seconds(
            "lateness",
            "after the first rank of the same node that called it; NaN for sends and receives, and where no "
            "other rank of the node is stored (clocks of two nodes cannot be compared)",
        ),
        maybe_integer(
            "step",
            "step it belongs to, about: by how many of them a step has between both looks; `<NA>` where "
            "they do not tell",
        ),
        moment("started", "when it was seen to run (NCCL)"),
        moment("completed", "when it was seen to have ended (NCCL)"),
        text("sizes", "shapes of the inputs: `[4, 1024] [8]`"),
        text("dtypes", "of the inputs"),
        text("place", "innermost frame of the call, `function (file:line)`, where the record has stacks"),
    ),
)
GROUPS = Table(
    "groups",
    "how far a rank had come in a process group, in a look",
    "`progress` of both snapshots of each incident",
    (
        text("incident", "id"),
        text("look", "`a`, `b`"),
        moment("time", "when the rank was looked at"),
        integer("rank", "global rank"),
        text("node", "its node"),
        text("group", "torch's name of the group"),
        integer("size", "members"),
        integer("enqueued", "number of the last collective it called, -1 for none"),
        integer("completed", "number of the last that ended, -1 for none"),
    ),
)
_SECOND: Final = 1_000_000_000
_LATEST: Final = 9.2e9
"""Unix seconds; ns in 64 bits reach to the year 2262."""


def at_ns(unix_seconds: float) -> int | None:
    """A time in whole ns, ``None`` for one that is not known."""
    return round(unix_seconds * _SECOND) if 0 < unix_seconds < _LATEST else None


def thread_rows(incident: str, look: str, ranks: Iterable[RawRank], stacks: Stacks) -> Rows:
    """The rows of ``threads()`` of one look."""
    for rank in ranks:
        head = (incident, look, at_ns(rank.time), rank.rank, rank.node)
        yield from _threads((*head, rank.pid, False), rank.threads, rank.source, stacks)
        for child in rank.children:
            yield from _threads((*head, child.pid, True), child.threads, rank.source, stacks)


def _threads(head: Row, threads: Iterable[RawThread], source: str | None, stacks: Stacks) -> Rows:
    for thread in threads:
        stack = stacks.shown(thread.frames)
        yield (
            *head,
            thread.thread_id,
            thread.name,
            thread.is_main,
            thread.holds_gil,
            thread.active,
            thread.collecting,
            thread.is_cut,
            len(stack),
            stack[0] if stack else None,
            stack,
            source,
        )


def step_rows(incident: str, look: str, ranks: Iterable[BriefRank]) -> Rows:
    """The rows of ``steps()`` of one look."""
    for rank in ranks:
        page = rank.progress
        if page is None:
            continue
        since = page.seconds_since_step
        yield (
            incident,
            look,
            at_ns(rank.time),
            rank.rank,
            rank.node,
            page.step,
            page.user_step,
            page.stage,
            page.batches,
            since,
            page.seconds_since_beat,
            page.seconds_since_return,
            at_ns(rank.time - since) if since is not None and rank.time > 0 else None,
        )


def group_rows(incident: str, look: str, ranks: Iterable[BriefRank]) -> Rows:
    """The rows of ``groups()`` of one look."""
    for rank in ranks:
        for group in rank.progress.groups if rank.progress is not None else ():
            yield (
                incident,
                look,
                at_ns(rank.time),
                rank.rank,
                rank.node,
                group.name,
                group.size,
                group.enqueued,
                group.completed,
            )
