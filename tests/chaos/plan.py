"""What a round is: settings, what happens to the job and when, or a row of the fault matrix. Data only.

It must not know what is right: ``tests.chaos.expected`` does. How it is carried out is ``tests.chaos.acts``'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["fault", "healthy", "worker", "agent", "full disk", "stalled folder"]
Deed = Literal[
    "worker SIGKILL",
    "worker SIGTERM",
    "worker SIGSTOP",
    "agent SIGKILL",
    "agent SIGTERM",
    "fill",
    "free",
    "freeze",
    "thaw",
    "remove",
]
When = Literal["starting", "running", "step", "later", "done"]
Place = Literal["plain", "small", "frozen"]
STEPS: Final = 70
GATE: Final = 60
"""The step before which the job waits until all has happened that is to happen to it."""
STEP_TIME: Final = 0.05
HANG_INTERVAL: Final = 15
"""Seconds: ``--job-hang-interval`` of rounds in which something hangs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``diag run`` is told.

    Attributes:
        restarts: ``--max-restarts``.
        interval: ``--job-hang-interval``, ``None`` for auto.
        budget: ``--evidence-budget``, seconds.
        notices: whether a command is told of what happens (``--notify-command``).
    """

    restarts: int
    on_hang: str
    policy: str
    interval: int | None
    budget: float
    logs: str
    notices: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """The command line."""
        interval = () if self.interval is None else (f"--job-hang-interval={self.interval}",)
        return (
            f"--max-restarts={self.restarts}",
            f"--on-hang={self.on_hang}",
            f"--fault-tolerant-policy={self.policy}",
            f"--evidence-budget={self.budget:g}",
            f"--log-capture={self.logs}",
            *interval,
        )


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens.

    Attributes:
        deed: what.
        when: ``starting``: the agent has begun; ``running``: it has workers; ``step``: so many are committed;
            ``later``: after the act before; ``done``: all steps are committed.
        value: steps, else seconds since then.
        rank: the worker's.
    """

    deed: Deed
    when: When
    value: float = 0.0
    rank: int = 0

    def __str__(self) -> str:
        who = f"{self.deed} of rank {self.rank}" if self.deed.startswith("worker") else self.deed
        when = {
            "step": f"at step {self.value:g}",
            "done": "when all is done",
            "later": f"{self.value:.1f} s later",
            "starting": f"{self.value:.1f} s after the agent's start",
            "running": f"{self.value:.1f} s after the workers' start",
        }
        return f"{who} {when[self.when]}"


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
        seed: of all rounds.
        number: of this one.
        row: of the fault matrix; empty where the job is ours and things happen to it.
        place: on what file system the records lie.
    """

    seed: int
    number: int
    kind: Kind
    ranks: int
    settings: Settings
    row: str = ""
    acts: tuple[Act, ...] = ()
    place: Place = "plain"

    @property
    def what(self) -> str:
        """In words."""
        return self.row or ", ".join(map(str, self.acts))

    @property
    def replay(self) -> str:
        """The command that makes the same round again."""
        return f'make chaos ARGS="--seed {self.seed} --only {self.number}"'
