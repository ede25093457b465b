"""What the detector is told and what it answers: one small frozen type each.

Nothing here reads a clock or a process. Times are seconds on ``time.monotonic()`` of the agent's host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.page import GroupSeq

SinkClass = Literal["frozen", "quiet", "ticking", "busy", "none"]
"""How the ranks that others wait for behave (DIAGNOSIS.md, "Class of a sink"); ``none`` has no sink here."""


@dataclass(frozen=True, slots=True)
class RankObservation:
    """One local rank at one tick. Counters are totals since the worker started.

    Attributes:
        rank: global rank.
        alive: whether the process exists and is no zombie.
        state: kernel state letter of its main thread.
        probed: whether a probe reports for it (steps and groups are meaningless otherwise).
        returned: whether its script has run to the end while the process is still there.
        step: optimizer steps.
        user_step_ns: when it last called ``Monitor.step``, 0 for never.
        beat_ns: when the probe's thread last ran, 0 for never.
        batches: batches its data loaders have yielded.
        groups: process groups with their sequence numbers.
        interval: its own job-hang-interval (seconds, -1 for off), ``None`` for not set.
        stage_limit: the same for the ``hang_detect`` scope it is in, stage the name of that scope.
        last_timer_call: when it last acquired or released a timer, 0 for never.
        cpu_seconds: of the main thread, run delay included (a starved thread wants to run); run_delay_seconds
            that part of it.
        other_cpu_seconds: of its other threads together.
        switches: voluntary context switches of the main thread.
        io_bytes: read and written by the main thread.
        children_cpu_seconds: of its child processes; children_io_bytes what they read and wrote.
        youngest_child_born: when its youngest child started that runs its code, ``None`` without one.
        log_bytes: size of its log files.
    """

    rank: int
    alive: bool = True
    state: str = "S"
    probed: bool = False
    returned: bool = False
    step: int = 0
    user_step_ns: int = 0
    beat_ns: int = 0
    batches: int = 0
    groups: tuple[GroupSeq, ...] = ()
    interval: float | None = None
    stage_limit: float | None = None
    stage: str = ""
    last_timer_call: float = 0.0
    cpu_seconds: float = 0.0
    run_delay_seconds: float = 0.0
    other_cpu_seconds: float = 0.0
    switches: int = 0
    io_bytes: int = 0
    children_cpu_seconds: float = 0.0
    children_io_bytes: int = 0
    youngest_child_born: float | None = None
    log_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """Workers were (re)started; everything known of the previous ones is void.

    Attributes:
        ranks_elsewhere: whether the job has ranks on other nodes, which nobody here observes.
        asks_others: whether those who observe them are asked before anything is published.
    """

    now: float
    ranks_elsewhere: bool = False
    asks_others: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """All local ranks, observed once more."""

    now: float
    ranks: tuple[RankObservation, ...]


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The user's limits are others from now on.

    Attributes:
        anew: whether a hang that was acted on, and goes on, is to be decided about anew.
    """

    settings: HangSettings
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """A snapshot that was asked for has been taken.

    Attributes:
        which: ``a`` or ``b``.
        communicating: ranks whose deciding thread stands in a communication call, by their stacks.
    """

    now: float
    which: Literal["a", "b"]
    communicating: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Sampled:
    """Working ranks were looked at in quick succession.

    Attributes:
        communicating: as in ``Captured``: a snapshot of all ranks was taken as well.
        loops: ranks that were in one endless-looking loop of the user's own Python in every sample.
        library_loops: the same, with library code at the leaf: a training loop may look like it.
    """

    now: float
    communicating: frozenset[int] = frozenset()
    loops: frozenset[int] = frozenset()
    library_loops: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The pair of snapshots was judged.

    Attributes:
        hang: whether the verdict is a hang (or dead ranks), not Healthy or Unknown.
        confidence: high, medium, low.
        healthy: whether the verdict is Healthy.
    """

    hang: bool
    confidence: str
    healthy: bool = False


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """A worker's own timer ran out: suspicion at once, whatever the clocks say."""

    now: float
    rank: int
    scope: str


@dataclass(frozen=True, slots=True)
class JudgedForAll:
    """The whole job was judged because of what another node saw; what was found holds here too.

    Attributes:
        hang: as in ``Diagnosed``.
        confidence: as in ``Diagnosed``.
    """

    hang: bool
    confidence: str


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """What is due was judged anew before it is acted on, and is no better; it may be due later now.

    Attributes:
        hang: as in ``Diagnosed``.
        confidence: as in ``Diagnosed``.
    """

    hang: bool
    confidence: str


@dataclass(frozen=True, slots=True)
class ActedOn:
    """Another node has decided about what is published here: it is not due here any more."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """What was due is not done: the job goes on elsewhere. The silence is given twice its length."""


Event = (
    CycleStarted
    | Tick
    | SettingsChanged
    | Captured
    | Sampled
    | Diagnosed
    | TimerExpired
    | JudgedForAll
    | JudgedAgain
    | ActedOn
    | Postponed
)

Clock = Literal["quiet", "ticking", "busy", "loop", "stage", "exit", "timer", "again"]
"""Whose limit was passed."""


@dataclass(frozen=True, slots=True)
class Suspected:
    """A suspicion is opened; the first snapshot follows, or was taken with the samples.

    Attributes:
        reason: why, for a person.
        clock: whose limit was passed; limit that limit (seconds, 0 where there is none).
        seconds: how long no progress was seen.
        suspects: the ranks that others seem to wait for; waiting those others.
        again: whether the same silence was published before: its incident is gone over once more.
        sampled: whether the snapshot taken with the last samples is the first one.
    """

    reason: str
    clock: Clock
    seconds: float
    limit: float
    suspects: tuple[int, ...]
    waiting: tuple[int, ...]
    sink_class: SinkClass
    again: bool = False
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Capture:
    """Take a snapshot of all local ranks now.

    Attributes:
        which: ``a`` opens a suspicion, ``b`` confirms or clears it.
        samples_of: working ranks that are looked at in quick succession as well.
    """

    which: Literal["a", "b"]
    samples_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """Take a snapshot, then look at working ranks in quick succession, without stopping them."""

    suspects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Nothing moved between the snapshots: diagnose and publish.

    Attributes:
        since: when the last progress was seen.
        sink_class: how the suspects behave; ``busy`` is published as suspected, not confirmed.
        clock: whose limit was passed; after ``timer`` the job may have made progress all the while.
        overdue: whether the silence is ten times what working ranks are given.
    """

    reason: str
    since: float
    suspects: tuple[int, ...]
    waiting: tuple[int, ...]
    sink_class: SinkClass
    clock: Clock = "quiet"
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Cleared:
    """The suspicion is dropped before anything was published."""

    reason: str
    gap: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """A published hang went away by itself after ``gap`` seconds without progress."""

    gap: float


@dataclass(frozen=True, slots=True)
class ActDue:
    """The act-after limit has passed with the hang still there; ``gap`` is the time without progress."""

    gap: float


@dataclass(frozen=True, slots=True)
class JobStopped:
    """All ranks have been stopped by a signal for ``seconds``: somebody's wish, no hang."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JobContinued:
    """They run again, after ``seconds``."""

    seconds: float


Instruction = (
    Suspected | Capture | Sample | Confirmed | Cleared | Recovered | ActDue | JobStopped | JobContinued
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Who waits, for whom, and how those behave, over the last window.

    Attributes:
        waiting: ranks inside a collective that has not completed.
        sinks: ranks that the waiting ones wait for; without waiting ranks, all ranks.
        sink_class: the most lively class among the sinks.
        all_stopped: every rank is stopped by a signal.
    """

    waiting: tuple[int, ...] = ()
    sinks: tuple[int, ...] = ()
    sink_class: SinkClass = "busy"
    all_stopped: bool = False
    frozen: tuple[int, ...] = field(default=())
