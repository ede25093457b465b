"""What the agent publishes of its state: the health page's content and the lines a person reads.

It looks at no disk and no process: what it is not told it does not know.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from importlib.metadata import version

from rich.console import Console as RichConsole

from rankscope.agent.health import Check, HealthStatus, Phase, Suspicion, WorkerHealth
from rankscope.agent.health.tallies import Tallies
from rankscope.agent.observing.observer import Observer
from rankscope.agent.telling.whereabouts import worker_health
from rankscope.agent.workers.model import Launch
from rankscope.diag.capture.pyspy import find_pyspy
from rankscope.diag.classify import Slowdown
from rankscope.diag.model import Diagnosis, RankState
from rankscope.diag.report.text import render_text
from rankscope.watchdog.detector import Detector

_WIDTH = 110
_VERSION = version("rankscope")
_CONFIRMED = ("confirmed", "acting")


class Bulletin:
    """Keeps the little that must be remembered between two publications.

    Args:
        node: this agent's node name.
        job: run id.

    Attributes:
        phase: what the agent is doing.
        last: the last diagnosis.
    """

    def __init__(self, node: str, job: str) -> None:
        self._node = node
        self._job = job
        self.phase: Phase = "starting"
        self._has_pyspy = find_pyspy() is not None
        self.last: Diagnosis | None = None

    def status(
        self,
        now: float,
        detector: Detector,
        launch: Launch | None,
        observer: Observer | None,
        *,
        trouble: str,
        page: bool,
        host: Mapping[str, Check],
        tallies: Tallies,
    ) -> HealthStatus:
        """The content of the health page.

        Args:
            now: ``time.monotonic()``.
            detector: what it makes of the workers.
            launch: the workers, whom observer looks at.
            observer: knows their page and processes.
            trouble: why records cannot be written, ``""`` when they can.
            page: whether there is a progress page.
            host: checks of the host, by name.
            tallies: what is counted.
        """
        suspicion = None
        if detector.state != "watching":
            silent = detector.seconds_without_progress(now)
            reason = f"no progress for {silent:.0f} s"
            suspicion = Suspicion(reason=reason, ranks=detector.situation.sinks)
        return HealthStatus(
            job=self._job,
            node=self._node,
            pid=os.getpid(),
            phase=self.phase,
            restart_count=launch.restart_count if launch else 0,
            workers=_workers(now, detector, launch, observer, self.last),
            suspected=suspicion,
            version=_VERSION,
            checks={**self._checks(trouble=trouble, page=page), **host},
            tallies=tallies,
        )

    def _checks(self, *, trouble: str, page: bool) -> dict[str, Check]:
        return {
            "watchdog:page": Check("pass") if page else Check("warn", "no progress page"),
            "capture:py-spy": Check("pass") if self._has_pyspy else Check("warn", "py-spy not found"),
            "store:records": Check("warn", f"cannot write: {trouble}") if trouble else Check("pass"),
        }

    def announcement(self, diagnosis: Diagnosis, silent: float, stored_at: str) -> str:
        """What the terminal shows of a confirmed hang."""
        lines = [f"no progress for {silent:.0f} s", self.in_full(diagnosis)]
        if stored_at:
            lines.append(f"stored in {stored_at}")
        return "\n".join(lines)

    def slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, stored_at: str) -> str:
        """What the terminal shows of a slow job: some lines, its stacks are on disk."""
        lines = [f"{diagnosis.verdict} ({diagnosis.confidence} confidence): {diagnosis.summary}"]
        if slowdown is not None:
            lines.insert(
                0,
                f"a step takes {slowdown.now:.2g} s since step {slowdown.since_step}, {slowdown.before:.2g} s"
                " before; nothing is done about it",
            )
        where = diagnosis.location
        if where is not None and where.source:
            lines.append(f"  {where.file}:{where.line}: {where.source}")
        if stored_at:
            lines.append(f"stored in {stored_at}")
        return "\n".join(lines)

    def in_full(self, diagnosis: Diagnosis) -> str:
        """A diagnosis with its evidence and stacks, as text."""
        text = io.StringIO()
        render_text(diagnosis, console=RichConsole(file=text, width=_WIDTH, no_color=True, highlight=False))
        return text.getvalue().rstrip()


def _workers(
    now: float, detector: Detector, launch: Launch | None, observer: Observer | None, last: Diagnosis | None
) -> tuple[WorkerHealth, ...]:
    if launch is None or observer is None:
        return ()
    holding = last if detector.state in _CONFIRMED else None
    return tuple(
        worker_health(
            worker,
            observer.slots.get(worker.rank),
            state="exited" if worker.rank in observer.ended else _state(worker.rank, detector),
            now=now,
            diagnosis=holding,
        )
        for worker in launch.workers
    )


def _state(rank: int, detector: Detector) -> RankState:
    if detector.state == "watching":
        return "running"
    if rank in detector.situation.sinks:
        return "hung" if detector.state in _CONFIRMED else "suspected"
    return "waiting" if rank in detector.situation.waiting else "running"
