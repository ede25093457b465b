"""What the closer of an incident does: waits for the others' word, then deletes the incident's keys. Pure.

The ruling stays; that of the incident before becomes a mark that it is over. What agents left behind that
came back late to the incident before goes too. It must not know what the ruling is.
"""

from __future__ import annotations

from rankscope.agent.nodes import keys
from rankscope.agent.nodes.events import Answered, Delete, Fetch, Put, StoreCall
from rankscope.agent.nodes.limits import most_parts

_ACKS: int = 256
"""Acknowledgements that are read in one call; each is a few bytes."""
_TERMS_BEYOND: int = 4
"""Terms after the last that the closer knows of, which somebody else may have taken."""


class Closing:
    """The end of one incident.

    Args:
        number: of the incident.
        size: number of agents.
        terms: the last term that is known.
        deadline: when it is no longer waited for, monotonic seconds.
    """

    def __init__(self, number: int, *, size: int, terms: int, deadline: float) -> None:
        self._number = number
        self._size = size
        self._terms = terms
        self._deadline = deadline
        self._waits_for = list(range(size))
        self._sweep = list(self._waits_for)
        self._asked: list[int] = []
        self._steps: list[StoreCall] | None = None

    @property
    def is_done(self) -> bool:
        """Whether all is deleted."""
        return self._steps == []

    @property
    def silent(self) -> tuple[int, ...]:
        """Group ranks that have not acknowledged."""
        return tuple(self._waits_for)

    def begin_sweep(self) -> None:
        """Look again for those whose word is missing."""
        self._sweep = list(self._waits_for)

    def call(self, now: float) -> StoreCall | None:
        """What is asked of the store next, ``None`` for nothing at present."""
        if self._steps is None and (not self._waits_for or now > self._deadline):
            self._steps = self._deletions()
        if self._steps is not None:
            return self._steps[0] if self._steps else None
        self._asked, self._sweep = self._sweep[:_ACKS], self._sweep[_ACKS:]
        return Fetch(tuple(keys.ack(self._number, rank) for rank in self._asked)) if self._asked else None

    def answer(self, call: StoreCall, answered: Answered) -> None:
        """The answer to ``call``."""
        if self._steps is not None:
            self._steps.pop(0)
        elif isinstance(call, Fetch):
            known = {rank for rank, value in zip(self._asked, answered.values, strict=True) if value}
            self._waits_for = [rank for rank in self._waits_for if rank not in known]

    def _deletions(self) -> list[StoreCall]:
        number, before = self._number, self._number - 1
        gone = [
            keys.look(number, which, rank, part)
            for rank in self._waits_for
            for which in ("a", "b")
            for part in range(most_parts(self._size))
        ]
        steps: list[StoreCall] = [Delete((*gone, *self._of(number)))]
        if before:
            steps += [Put(((keys.ruling(before), keys.OVER),)), Delete(self._of(before))]
        return steps

    def _of(self, number: int) -> tuple[str, ...]:
        leads = (keys.lead(number, term) for term in range(self._terms + _TERMS_BEYOND))
        acks = (keys.ack(number, rank) for rank in range(self._size))
        return (keys.opening(number), keys.clock(number), keys.verdict(number), *leads, *acks)
