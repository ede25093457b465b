"""Carries out what happens to a job, each at its moment: signals, and what becomes of the records' folder."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.chaos.expected import Expected
from tests.chaos.job import ChaosJob
from tests.chaos.places import Ground
from tests.chaos.plan import GATE, Act
from tests.faults.ranks_of import pids_of
from tests.jobs import until

_AFTER: Final = 5
"""Steps after an act from which the next one meets the workers that came after it."""
_SIGNALS: Final = {
    "SIGKILL": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGSTOP": signal.SIGSTOP,
}


class Actor:
    """Does all acts of a round, in order.

    Args:
        job: to whom.
        ground: where its records lie.
        expected: when it is over before the last act.
        seconds: that anything may take.

    Attributes:
        done: what was done and when (unix seconds).
    """

    def __init__(self, job: ChaosJob, ground: Ground, expected: Expected, *, seconds: float) -> None:
        self._job = job
        self._ground = ground
        self._expected = expected
        self._seconds = seconds
        self._least = 0
        self.done: list[tuple[Act, float]] = []

    def perform(self, acts: Sequence[Act]) -> None:
        """Do them; the job may finish once only what waits for its end is left.

        Raises:
            AssertionError: a moment did not come in time.
        """
        for act in acts:
            if act.when == "done":
                self._job.let_go()
            self._wait_for(act)
            if self._job.is_over:
                break
            self.done.append((act, time.time()))
            self._do(act)
            self._least = len(self._job.committed) + _AFTER
        self._job.let_go()

    def _wait_for(self, act: Act) -> None:
        job = self._job
        if act.when == "step":
            wanted = min(GATE, max(int(act.value), self._least))
            self._until(lambda: len(job.committed) >= wanted, f"step {wanted}")
        elif act.when == "done":
            self._until(lambda: self._expected.steps == len(job.committed), "the last step")
        elif act.when == "starting":
            self._until(lambda: bool(job.records.agents()), "the agent's record")
        elif act.when == "running":
            self._until(lambda: act.rank in pids_of(job), f"rank {act.rank}")
        if act.when in ("later", "starting", "running"):
            time.sleep(act.value)  # the moment that was drawn; nothing is taken to have happened by then

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until(lambda: self._job.is_over or condition(), what, seconds=self._seconds)

    def _do(self, act: Act) -> None:
        job, ground = self._job, self._ground
        whose, _, name = act.deed.partition(" ")
        if whose == "worker":
            _send(pids_of(job).get(act.rank), _SIGNALS[name])
        elif act.deed == "agent SIGKILL":
            job.signal(signal.SIGKILL)
            job.finish()
            job.launch()
            # Until then those that it has left behind must not be let go on: they would just finish.
            self._until(lambda: bool(pids_of(job)), "the workers of the next agent")
        elif act.deed == "agent SIGTERM":
            job.signal(signal.SIGTERM)
        else:
            {
                "fill": ground.fill,
                "free": ground.free,
                "freeze": ground.freeze,
                "thaw": ground.thaw,
                "remove": ground.remove,
            }[act.deed]()


def _send(pid: int | None, number: signal.Signals) -> None:
    assert pid is not None, "there is no such worker"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
