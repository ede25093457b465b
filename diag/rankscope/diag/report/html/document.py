"""The one document that a report is drawn from: what is on the page, and nothing of how it looks.

Plain structs, encoded as JSON with the field names below (docs/reference/report-document.md). All texts are
as they are shown: without control, format or bidirectional characters, and cut where they are longer than a
person reads. What would be repeated (frames, sets of ranks, names of nodes) is written once, and referred to
by its index.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from rankscope.diag.model import Action, Confidence, Kind, RankClass, RankState, Role, Severity, Verdict

SCHEMA: Final = 1
"""Of the document; fields may be added, none renamed or removed."""


class RankSet(msgspec.Struct, frozen=True, gc=False):
    """A set of ranks.

    Attributes:
        ranks: folded, ``0-3,6``.
        count: how many.
        is_cut: whether the text is longer than a page takes and ends before its end.
    """

    ranks: str
    count: int
    is_cut: bool = False


class Place(msgspec.Struct, frozen=True):
    """A line of the user's code; rank is ``None`` for a place that all share."""

    function: str
    file: str
    line: int
    source: str | None = None
    rank: int | None = None


class Head(msgspec.Struct, frozen=True):
    """The verdict, as ``diag analyze --json`` has it, with sets of ranks folded.

    Attributes:
        time: when it was made, ISO 8601, UTC.
        nodes: the culprits' first ones; node_count is how many there are.
        stopped_for: seconds since the last step of the ranks that made one, ``None`` when not known, and
            when the job moves.
    """

    job: str
    time: str
    verdict: Verdict
    kind: Kind
    severity: Severity
    confidence: Confidence
    summary: str
    culprits: RankSet
    nodes: tuple[str, ...]
    node_count: int
    location: Place | None
    world_size: int
    observed: RankSet
    rule: str
    would_change: str = ""
    incident: str | None = None
    stopped_for: float | None = None


class Decided(msgspec.Struct, frozen=True):
    """What was decided, and what came of it.

    Attributes:
        then: a sentence each: restarts that followed, a recovery, the end of the job.
    """

    action: Action
    reason: str
    time: str
    exit_code: int | None = None
    then: tuple[str, ...] = ()


class Stack(msgspec.Struct, frozen=True, gc=False):
    """One stack and who shows it.

    Attributes:
        count: number of threads.
        ranks: index into ``sets``.
        threads: the first of them, ``rank:thread id``.
        frames: indexes into ``frames``, leaf first.
        is_culprit: whether a culprit shows it.
        frames_left_out: number of frames behind those, towards the root, that are not on the page.
    """

    count: int
    ranks: int
    threads: tuple[str, ...]
    frames: tuple[int, ...]
    is_culprit: bool = False
    frames_left_out: int = 0


class Stacks(msgspec.Struct, frozen=True):
    """Stacks, culprits first, then rarest first.

    Attributes:
        groups: those that are on the page.
        left_out: number of stacks that are not; threads_left_out is how many threads show those.
    """

    groups: tuple[Stack, ...] = ()
    left_out: int = 0
    threads_left_out: int = 0


class TreeFrame(msgspec.Struct, frozen=True, gc=False):
    """One frame of the prefix tree, root first.

    Attributes:
        frame: index into ``frames``, -1 for several frames drawn as one.
        parent: index into ``tree``, -1 for the root.
        have: index into ``sets``: the ranks that have it; lack: that were observed and do not.
        folded: number of frames that are drawn as this one, 0 for a frame.
        is_culprit: whether a culprit has it.
    """

    frame: int
    parent: int
    have: int
    lack: int
    folded: int = 0
    is_culprit: bool = False


class Waiters(msgspec.Struct, frozen=True):
    """Ranks that are equal in the wait-for graph.

    Attributes:
        ranks: index into ``sets``; node_count is on how many nodes they are.
        waits_for: indexes into ``waits`` of those that have a rank it waits for.
        targets: index into ``sets`` of the ranks it waits for, -1 for none.
        position: where they stand, in short.
    """

    ranks: int
    role: Role
    state: RankState
    position: str
    waits_for: tuple[int, ...] = ()
    targets: int = -1
    node_count: int = 1


class Ranks(msgspec.Struct, frozen=True):
    """Every rank, a column each: entry ``i`` of every list is of the same rank.

    Attributes:
        node: index into ``nodes``; state into ``states``; role into ``roles``; position into ``positions``;
            reason into ``reasons`` (-1: nothing to say).
        pid: 0 when not known.
        step: the script's own number, else optimizer steps since the worker started, ``None`` when not known.
        idle: seconds since the last step, ``None`` when not known.
    """

    rank: tuple[int, ...] = ()
    node: tuple[int, ...] = ()
    pid: tuple[int, ...] = ()
    state: tuple[int, ...] = ()
    role: tuple[int, ...] = ()
    step: tuple[int | None, ...] = ()
    idle: tuple[float | None, ...] = ()
    position: tuple[int, ...] = ()
    reason: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    states: tuple[RankState, ...] = ()
    roles: tuple[Role, ...] = ()
    positions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


class RankRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the table of ranks: ranks that are alike.

    Attributes:
        nodes: the first nodes they are on; node_count is how many there are.
        steps: least and greatest step; idle the same of seconds since it.
        reason: why something of them could not be seen, ``""`` for nothing.
    """

    ranks: int
    nodes: tuple[str, ...]
    node_count: int
    state: RankState
    role: Role
    rank_class: RankClass | None
    position: str
    steps: tuple[int, int] | None = None
    idle: tuple[float, float] | None = None
    reason: str = ""


class Reason(msgspec.Struct, frozen=True):
    """What could not be observed of which ranks (index into ``sets``), and why."""

    ranks: int
    reason: str


class Fact(msgspec.Struct, frozen=True):
    """One piece of evidence; rank is ``None`` for the whole job."""

    source: str
    fact: str
    rank: int | None = None


class OddFrame(msgspec.Struct, frozen=True):
    """A library frame that decides and that the catalogue does not know; ranks is an index into ``sets``."""

    frame: str
    ranks: int


class CycleRow(msgspec.Struct, frozen=True):
    """One launch of the workers on one node.

    Attributes:
        began: unix time, seconds.
        stages: seconds of each stage, in the order of the timeline's ``stages``.
    """

    node: str
    number: int
    began: float
    duration: float
    stages: tuple[float, ...]
    result: str
    reason: str = ""
    steps: int = 0
    incident: str | None = None


MomentKind = Literal["incident", "decision", "restart", "slow", "end", "other"]


class MomentRow(msgspec.Struct, frozen=True):
    """Something that happened.

    Attributes:
        time: ISO 8601, UTC; at the same as unix time, seconds.
        kind: how it is marked.
        is_this: whether it belongs to the incident of the page.
    """

    time: str
    at: float
    kind: MomentKind
    type: str
    text: str
    node: str = ""
    count: int = 1
    incident: str | None = None
    is_this: bool = False


class Timeline(msgspec.Struct, frozen=True):
    """What the job has been through, oldest first.

    Attributes:
        state: what came of the job; ``running`` while it runs; ``""`` when not known.
        wall: seconds from begin to end, of the node that was there longest; lost of these, what was not
            training.
        stages: names of a cycle's stages.
        cycles_left_out: number of cycles that are not on the page; moments_left_out likewise.
        warnings: what of the records is missing or could not be read.
    """

    state: str
    command: str
    created: str | None
    ended: str | None
    wall: float
    lost: float
    node_count: int
    restarts: int
    stages: tuple[str, ...]
    cycles: tuple[CycleRow, ...] = ()
    moments: tuple[MomentRow, ...] = ()
    cycles_left_out: int = 0
    moments_left_out: int = 0
    warnings: tuple[str, ...] = ()


class Page(msgspec.Struct, frozen=True):
    """All that is on a report.

    Attributes:
        made: when the page was made, ISO 8601, UTC.
        decided: ``None`` when nothing was decided, or nobody was there to decide.
        others: stacks of threads that are not compared.
        tree: prefix tree of the compared stacks, depth first, the root at 0; empty without stacks.
        unobserved: ranks that could not be observed; limits what was missing of ranks that were.
        timeline: ``None`` when nothing is stored of the job.
    """

    made: str
    head: Head
    decided: Decided | None
    frames: tuple[str, ...]
    sets: tuple[RankSet, ...]
    stacks: Stacks
    others: Stacks
    tree: tuple[TreeFrame, ...]
    waits: tuple[Waiters, ...]
    ranks: Ranks
    rows: tuple[RankRow, ...]
    rows_left_out: int
    unobserved: tuple[Reason, ...]
    limits: tuple[Reason, ...]
    evidence: tuple[Fact, ...]
    evidence_left_out: int
    odd_frames: tuple[OddFrame, ...]
    timeline: Timeline | None
    schema: int = SCHEMA
