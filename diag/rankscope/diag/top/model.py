"""The nouns of ``diag top``: what was read of a rank, and the row it makes. Frozen, plain, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rankscope.diag.model import SCHEMA, RankState
from rankscope.watchdog.page import SlotView


@dataclass(frozen=True, slots=True)
class RankSample:
    """One rank at one moment.

    Attributes:
        lives: whether its process is the one it was.
        letter: the kernel's state letter of its main thread, ``""`` when gone.
        cpu_seconds: of all its threads since it started.
        rss_bytes: resident memory.
        age: seconds since it started.
        wchan: what it sleeps in, ``None`` when not known.
        slot: its slot of the page, ``None`` without a probe.
    """

    rank: int
    pid: int
    start_ticks: int
    lives: bool
    letter: str = ""
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    age: float = 0.0
    wchan: str | None = None
    slot: SlotView | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All ranks of this host at one moment; ``time_ns`` is ``time.monotonic_ns()``."""

    time_ns: int
    ranks: tuple[RankSample, ...]


class TopRow(msgspec.Struct, frozen=True):
    """One rank as it is shown.

    Attributes:
        step: number of its last step, as the script or else the optimizer counts; ``None`` without a probe
            and before the first one.
        steps_per_second: over the last 10 s and two steps at least; 0 when it stands, ``None``: not known.
        seconds_since_progress: since a step, a batch or a collective; ``None`` when not known.
        communication: share of the looks of the last minute that met a collective under way, 0 to 1.
        cpu_percent: of one core.
        where: the phase or the collective that it is in.
    """

    rank: int
    pid: int
    state: RankState
    step: int | None = None
    steps_per_second: float | None = None
    seconds_since_progress: float | None = None
    communication: float | None = None
    cpu_percent: float | None = None
    rss_bytes: int = 0
    where: str = ""


class TopPage(msgspec.Struct, frozen=True):
    """What is shown of a job at one moment; what ``--json`` prints.

    Attributes:
        time: ISO 8601, UTC.
        world_size: of the whole job; ranks has those of this host.
        restarts: the job has had.
        word: what the agent says of the job: a suspicion, a verdict, its end; ``""`` when all is well.
        is_alarm: whether that is bad news.
    """

    job: str
    host: str
    time: str
    world_size: int
    ranks: tuple[TopRow, ...]
    restarts: int = 0
    word: str = ""
    is_alarm: bool = False
    schema: int = SCHEMA
