"""How long each wait of the protocol takes, and how much it may send; one place, with reasons. Seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 1 << 20
"""A value; torch's store drops a connection that sends one above 8 MiB (measured)."""
NODE_BYTES: Final = 4 << 20
"""A look of one node, compressed."""
JOB_BYTES: Final = 128 << 20
"""A look of all nodes, compressed: what the server of the store, and the leader, must hold."""
BATCH: Final = 16
"""Values that are read before the next look for news: 2,000 of 100 KB at once took 3.05 s and 610 MiB, one by
one 0.40 s (measured)."""


def look_bytes(nodes: int) -> int:
    """How large a look of one node may be, compressed, in a job of so many nodes."""
    return min(NODE_BYTES, JOB_BYTES // max(1, nodes))


def most_parts(nodes: int) -> int:
    """Parts that a look may have."""
    return -(-look_bytes(nodes) // CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class Limits:
    """The waits.

    Attributes:
        tick: between two looks at the store while nothing is open.
        open_tick: the same while an incident is open.
        dense_tick: the same where clocks are compared, and where one leads.
        dense: group ranks below this may come to lead: they mark the clock often from the start.
        second_look: between the two looks of an agent.
        look: for both looks; past it an agent goes on without them.
        patience: until an agent that has posted its looks leads where nobody does.
        patience_step: more for each group rank before it, so that one comes and not all; more than a tick, by
            which agents differ in when they heard of the incident.
        patience_most: as many times at most.
        collect: a leader waits for looks that have not arrived.
        judge: a leader may merge and judge, until another may lead.
        incident: from opening to verdict at most; then it ends with nothing.
        ack: the closer waits for all to know.
        alone: without an answer of the store until an agent goes on by itself.
    """

    tick: float = 1.0
    open_tick: float = 0.25
    dense_tick: float = 0.05
    dense: int = 4
    second_look: float = 4.0
    look: float = 30.0
    patience: float = 4.0
    patience_step: float = 1.5
    patience_most: int = 10
    collect: float = 10.0
    judge: float = 20.0
    incident: float = 180.0
    ack: float = 10.0
    alone: float = 10.0

    @property
    def lead(self) -> float:
        """How long a term lasts without a verdict before the next may lead."""
        return self.collect + self.judge

    def wait_before_lead(self, rank: int) -> float:
        """How long a group rank waits for those before it."""
        return self.patience_step * min(rank, self.patience_most)
