"""What the status page says, as plain values. Who writes it and who reads it is not known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from rankscope.agent.health.tallies import Tallies
from rankscope.diag.model import RankState

Phase = Literal["starting", "rendezvous", "running", "restarting", "stopping", "exit_barrier", "ended"]
CheckStatus = Literal["pass", "warn", "fail"]


class WorkerHealth(msgspec.Struct, frozen=True):
    """One local worker.

    Attributes:
        step: optimizer steps since its process started, the script's own number (``Monitor.step``) when it
            has no optimizer; ``None`` before the first.
        seconds_since_progress: since its last step, ``None`` before the first.
        where: where it is, in short, ``""`` when that is not known. Not for the open paths.
    """

    rank: int
    local_rank: int
    pid: int
    state: RankState
    step: int | None = None
    seconds_since_progress: float | None = None
    where: str = ""


class Suspicion(msgspec.Struct, frozen=True):
    """Why the watchdog suspects a hang, and which global ranks."""

    reason: str
    ranks: tuple[int, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at (store, disk, capture permission); ``output`` is one short line."""

    status: CheckStatus
    output: str = ""


class HealthStatus(msgspec.Struct, frozen=True):
    """What the agent knew when it last published.

    Attributes:
        pid: process of the agent.
        phase: where the agent is; the page's own phase record is fresher.
        workers: the workers of this node.
        suspected: set while a hang is suspected or confirmed.
        checks: by name.
        version: of Rankscope.
        tallies: what is counted for ``/metrics``.
    """

    job: str
    node: str
    pid: int
    phase: Phase = "starting"
    restart_count: int = 0
    workers: tuple[WorkerHealth, ...] = ()
    suspected: Suspicion | None = None
    checks: dict[str, Check] = {}
    version: str = ""
    tallies: Tallies = Tallies()


class PhaseRecord(msgspec.Struct, frozen=True):
    """The agent's phase; ``deadline`` (``time.monotonic()``) is its latest end, ``None`` for no limit."""

    name: Phase = "starting"
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Stamps:
    """When the agent's loops last turned (monotonic ns), 0 for never; ``created_ns`` is the page's age."""

    main_ns: int
    watch_ns: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class PageView:
    """The page at one moment; ``status`` is ``None`` before the first ``publish``."""

    stamps: Stamps
    phase: PhaseRecord
    status: HealthStatus | None
    published_ns: int
