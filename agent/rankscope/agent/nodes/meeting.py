"""Who meets in a round, and where; plain values. It must not know what they say to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankscope.agent.nodes.messages import Member
from rankscope.agent.nodes.store_link import Store


@dataclass(frozen=True, slots=True)
class Meeting:
    """One round of the rendezvous, as an agent takes part in it.

    Attributes:
        me: this agent.
        job: run id.
        world_size: ranks of the job.
        connect: opens a connection to the store, below a prefix of this round's own.
    """

    me: Member
    job: str
    world_size: int
    connect: Callable[[], Store]
