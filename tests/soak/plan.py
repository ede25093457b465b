"""What a soak is: how long, how many ranks, what is done to them, when samples begin to count. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tests.soak.trend import LEAST_SAMPLES

Kind = Literal["torch", "plain"]
"""``torch``: optimizer steps, with an all_reduce in every tenth. ``plain``: no torch in the ranks, steps told
by ``Monitor.step``; the agent is the same, and the start costs a tenth of the CPU."""

LEAST_SECONDS: Final = 20.0
_LONG: Final = 600.0
_WARM_UP: Final = 600.0
"""At most, in seconds: the last caches are full (measured: after five minutes)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak.

    Attributes:
        seconds: for which everything runs, the warm-up included, the start of the jobs not.
        kind: of the ranks.
        workers: under ``diag run``; control, as many under torchrun beside them.
        step_time: seconds that a rank sleeps in a step.
        capture_every: seconds between the beginnings of two captures.
        rate: requests a second.
        streams: clients of ``/v1/stream`` that come and go.
        message_every: seconds between two messages of rank 0, each an event and a notice.
    """

    seconds: float = 3600.0
    kind: Kind = "torch"
    workers: int = 8
    control: int = 8
    step_time: float = 0.01
    capture_every: float = 10.0
    rate: float = 100.0
    streams: int = 3
    message_every: float = 2.0

    @property
    def is_long(self) -> bool:
        """Whether it is long enough to resolve small things."""
        return self.seconds >= _LONG

    @property
    def warm_up(self) -> float:
        """Seconds whose samples do not count."""
        return min(_WARM_UP, self.seconds / 3)

    @property
    def sample_every(self) -> float:
        """Seconds between two samples: some 300 in all."""
        return max(1.0, self.seconds / 300)

    @property
    def samples(self) -> int:
        """So many count, if the machine is quick enough."""
        return int((self.seconds - self.warm_up) / self.sample_every)


def checked(plan: Plan) -> Plan:
    """The plan, if it can be judged.

    Raises:
        ValueError: it is too short, or its two jobs make different steps.
    """
    if plan.kind == "torch" and plan.control != plan.workers:
        raise ValueError("a collective among fewer ranks is another step: as many under torchrun")
    if plan.seconds < LEAST_SECONDS or plan.samples < LEAST_SAMPLES:
        raise ValueError(f"{plan.seconds:g} s allow no trend, {LEAST_SECONDS:g} do")
    return plan
