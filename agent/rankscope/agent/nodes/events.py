"""What the protocol is told, and what it asks for; one small type each. No behaviour.

Calls to the store are answered by ``Answered`` or ``Failed``, one at a time: no call is asked for while
another is unanswered. All times are ``time.monotonic()`` of the own host but for ``began`` and ``ended``
(unix time).
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.messages import Mark, Opening, Ruling

# Events.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class Suspected:
    """The own watch suspects a hang."""

    now: float
    opening: Opening


@dataclass(frozen=True, slots=True)
class Progressed:
    """Own workers go on: whatever is open is no hang, or is over; ``reason`` is a sentence."""

    now: float
    reason: str


@dataclass(frozen=True, slots=True)
class LookTaken:
    """A look that was asked for is there, folded, in parts of bounded size.

    Attributes:
        opening: of the incident that it was taken for; ``None`` for the one that is open.
    """

    now: float
    which: Which
    parts: tuple[bytes, ...]
    opening: Opening | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict that was asked for is there.

    Attributes:
        opening: of the incident that it is of; ``None`` for the one that is open.
    """

    now: float
    verdict: bytes
    opening: Opening | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """What should be done about the verdict, by the own policy."""

    now: float
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Left:
    """The membership changed: this round, and all that is open in it, is void."""

    now: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The store has answered the call.

    Attributes:
        number: of ``Add``.
        values: of ``Fetch``, ``b""`` for a key that is not there; of ``CompareSet`` what stands there now.
        began: unix time before the call; ended after it.
    """

    now: float
    number: int = 0
    values: tuple[bytes, ...] = ()
    began: float = 0.0
    ended: float = 0.0

    @property
    def value(self) -> bytes:
        """The first value."""
        return self.values[0] if self.values else b""


@dataclass(frozen=True, slots=True)
class Failed:
    """The store did not answer the call; whether it was carried out is not known."""

    now: float
    reason: str


Event = Tick | Suspected | Progressed | LookTaken | Judged | Proposed | Left | Answered | Failed

# Calls to the store.


@dataclass(frozen=True, slots=True)
class Add:
    """Add to a counter, which is made where there is none; answers what it is then."""

    key: str
    amount: int


@dataclass(frozen=True, slots=True)
class CompareSet:
    """Set a key if it has a value (``b""``: if it is not there); answers the value that stands there then."""

    key: str
    expected: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Set keys in this order; answered when the store has them."""

    items: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """The values of keys, whether they are there or not."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete keys, whether they are there or not."""

    keys: tuple[str, ...]


StoreCall = Add | CompareSet | Put | Fetch | Delete

# Other instructions.


@dataclass(frozen=True, slots=True)
class Look:
    """Look at the own workers; answered by ``LookTaken``, also when nothing can be seen."""

    which: Which
    opening: Opening


@dataclass(frozen=True, slots=True)
class Keep:
    """An agent's look has arrived: keep it for the verdict."""

    which: Which
    rank: int
    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An agent of which a look has not arrived, and why that is so; a phrase after ``because``."""

    which: Which
    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Merge what was kept, and find the verdict; answered by ``Judged``.

    Attributes:
        missing: what has not arrived.
        rosters: what is known of those agents: group rank and ``Member``, encoded.
        own_marks: this agent's; marks those of each other agent, by group rank.
    """

    opening: Opening
    missing: tuple[Missing, ...]
    rosters: tuple[tuple[int, bytes], ...]
    own_marks: tuple[Mark, ...]
    marks: tuple[tuple[int, tuple[Mark, ...]], ...]


@dataclass(frozen=True, slots=True)
class Learn:
    """The verdict of the whole job."""

    opening: Opening
    verdict: bytes


@dataclass(frozen=True, slots=True)
class Follow:
    """How the incident ends, for all nodes.

    Attributes:
        number: of the incident in this round.
        late: whether this agent learned it without having taken part.
    """

    number: int
    ruling: Ruling
    late: bool = False


@dataclass(frozen=True, slots=True)
class Alone:
    """The store does not answer: this agent is on its own, until it does; ``reason`` is a phrase."""

    reason: str


Instruction = StoreCall | Look | Keep | Judge | Learn | Follow | Alone
