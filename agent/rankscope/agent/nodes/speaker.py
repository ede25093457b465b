"""What all parts of the protocol stand on: the state, by the table; one call to the store at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.agent.nodes import keys
from rankscope.agent.nodes.affair import Affair
from rankscope.agent.nodes.events import Add, Answered, Instruction, StoreCall
from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.messages import Mark, Member, Opening
from rankscope.agent.nodes.transitions import State, is_known

Then = Callable[[Answered], None]


class Speaker:
    """One agent in one round: where it is, and what it says.

    Args:
        me: this agent.
        limits: how long it waits for what.

    Attributes:
        state: where it is.
        over: number of the last incident that is over for it.
    """

    def __init__(self, me: Member, limits: Limits | None = None) -> None:
        self._me = me
        self._limits = limits or Limits()
        self.state: State = "watching"
        self.over = 0
        self._now = 0.0
        self._may_sweep = False
        self._said: list[Instruction] = []
        self._then: Then | None = None
        self._trouble_since: float | None = None
        self._has_left = False
        self._is_named = False
        self._wants: Opening | None = None
        self._affair: Affair | None = None

    @property
    def incident(self) -> str:
        """Id of the open incident, ``""`` for none."""
        return self._affair.opening.incident if self._affair is not None else ""

    def _ask(self, call: StoreCall, then: Then) -> None:
        self._said.append(call)
        self._then = then

    def _mark(self, affair: Affair, then: Callable[[], None]) -> None:
        """Count on the shared counter: what was counted before was earlier, on whatever host."""

        def counted(answered: Answered) -> None:
            affair.marks.append(Mark(answered.number, answered.began, answered.ended))
            then()

        self._ask(Add(keys.clock(affair.number), 1), counted)

    def _go(self, state: State, reason: str) -> None:
        if not is_known(self.state, state, reason):
            raise AssertionError(f"{self.state} -> {state}: {reason}")
        self.state = state
        if self._affair is not None:
            self._affair.state_since = self._now
