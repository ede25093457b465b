"""What one agent knows of the incident that is open; plain fields, no behaviour but small questions."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.agent.nodes.closing import Closing
from rankscope.agent.nodes.collecting import Collection
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.messages import Mark, Opening, Ruling


@dataclass(slots=True)
class Affair:
    """One incident.

    Attributes:
        number: in this round.
        opening: what opened it.
        since: when this agent joined it; state_since when it came into its state.
        looks: own looks that are there, in parts; looked_at when each came; asked those that were asked for.
        posted: own looks that stand in the store.
        marks: own marks of the shared counter.
        term: the term that may be led next, or is led now; term_since when it began for this agent.
        collection: what has arrived, where this agent leads.
        own_verdict: what this agent found as leader; verdict what stands in the store.
        proposal: the ruling that this agent wants; ruling the one that stands in the store.
        acknowledged: whether the others can know that this agent knows it.
        closing: what is left to do, where this agent wrote the ruling.
        written: keys that this agent must delete.
    """

    number: int
    opening: Opening
    since: float
    state_since: float
    looks: dict[Which, tuple[bytes, ...]] = field(default_factory=dict[Which, tuple[bytes, ...]])
    looked_at: dict[Which, float] = field(default_factory=dict[Which, float])
    asked: set[Which] = field(default_factory=set[Which])
    posted: set[Which] = field(default_factory=set[Which])
    marks: list[Mark] = field(default_factory=list[Mark])
    term: int = 0
    term_since: float = 0.0
    collection: Collection | None = None
    own_verdict: bytes = b""
    verdict: bytes = b""
    proposal: Ruling | None = None
    ruling: Ruling | None = None
    acknowledged: bool = False
    closing: Closing | None = None
    written: list[str] = field(default_factory=list[str])
