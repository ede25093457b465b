"""A node's events, divided: by job, and by agent. Pure.

A run id may be used again, so one log may hold several jobs one after the other; and one job may have had
several agents, of which all but the last were killed or asked to be run again (exit code 75).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rankscope.diag.store.events import Event

RUN_AGAIN: Final = 75
"""Exit code of an agent that asks to be run again (FAULT_TOLERANCE.md, "Exit codes")."""


@dataclass(slots=True)
class AgentLife:
    """One agent's events, from its start to the last.

    Attributes:
        events: its events.
        ended: its ``job.ended``, ``None`` when it was killed, or lives.
    """

    events: list[Event] = field(default_factory=list[Event])
    ended: Event | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the next agent of the node goes on with this one's job."""
        return self.ended is None or self.ended.data.get("exit_code") == RUN_AGAIN


def agent_lives(events: Sequence[Event]) -> list[AgentLife]:
    """The agents that a log tells of, in order; before the first start are the last words of one."""
    lives: list[AgentLife] = []
    for event in events:
        name = event.name
        if not lives or name == "job.started":
            lives.append(AgentLife())
        lives[-1].events.append(event)
        if name == "job.ended":
            lives[-1].ended = event
    return lives


def jobs_of(lives: Sequence[AgentLife]) -> list[list[AgentLife]]:
    """The agents of one job after the other."""
    jobs: list[list[AgentLife]] = []
    for life in lives:
        if jobs and jobs[-1][-1].goes_on:
            jobs[-1].append(life)
        else:
            jobs.append([life])
    return jobs
