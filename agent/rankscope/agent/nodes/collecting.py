"""What a leader collects: the looks of all agents, and who its clock is compared with. Pure.

It goes over the looks that have not arrived, in batches, until all are there or nobody waits any more. It
must not know what a look holds, nor how long it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.agent.nodes import keys
from rankscope.agent.nodes.events import Answered, Fetch, Keep, Missing
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.limits import BATCH
from rankscope.agent.nodes.messages import LookHead, Mark, split_head

_Wanted = tuple[Which, int]
_WHICH: tuple[Which, ...] = ("a", "b")


class Collection:
    """The looks of one incident, as they arrive.

    Args:
        number: of the incident.
        size: number of agents.
        most_parts: a look that claims more is damaged.
    """

    def __init__(self, number: int, *, size: int, most_parts: int) -> None:
        self._number = number
        self._most_parts = most_parts
        self._absent: dict[_Wanted, str] = {(which, rank): "" for which in _WHICH for rank in range(size)}
        self._sweep: list[_Wanted] = []
        self._asked: list[_Wanted] = []
        self._begun: tuple[_Wanted, LookHead, bytes] | None = None
        self._unfinished: list[tuple[_Wanted, LookHead, bytes]] = []
        self.marks: dict[int, tuple[Mark, ...]] = {}
        self.parts: dict[_Wanted, int] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every look has arrived."""
        return not self._absent

    def begin_sweep(self) -> None:
        """Go over all that has not arrived."""
        self._sweep = list(self._absent)

    def call(self) -> Fetch | None:
        """What is read next, ``None`` when the sweep is over."""
        self._begun = None
        if self._unfinished:
            self._begun = self._unfinished.pop()
            (which, rank), head, _ = self._begun
            return Fetch(tuple(keys.look(self._number, which, rank, part) for part in range(1, head.parts)))
        self._asked, self._sweep = self._sweep[:BATCH], self._sweep[BATCH:]
        if not self._asked:
            return None
        return Fetch(tuple(keys.look(self._number, which, rank) for which, rank in self._asked))

    def answer(self, answered: Answered) -> Iterator[Keep]:
        """Take what was read; what is whole is kept."""
        if self._begun is not None:
            wanted, head, first = self._begun
            if all(answered.values):
                yield self._arrived(wanted, head, (first, *answered.values))
            return
        for wanted, value in zip(self._asked, answered.values, strict=True):
            read = split_head(value) if value else None
            if read is None or read[0].parts > self._most_parts:
                if value:
                    self._absent[wanted] = "what it wrote cannot be read"
                continue
            head, first = read
            if head.parts > 1:
                self._unfinished.append((wanted, head, first))
            else:
                yield self._arrived(wanted, head, (first,))

    def missing(self, seconds: float) -> tuple[Missing, ...]:
        """What has not arrived after so many seconds, and why."""
        return tuple(
            Missing(which, rank, why or self._why(which, rank, seconds))
            for (which, rank), why in self._absent.items()
        )

    def _why(self, which: Which, rank: int, seconds: float) -> str:
        if which == "b" and ("a", rank) not in self._absent:
            return f"its agent answered once, and then not for {seconds:.0f} s"
        return f"its agent did not answer within {seconds:.0f} s"

    def _arrived(self, wanted: _Wanted, head: LookHead, parts: tuple[bytes, ...]) -> Keep:
        which, rank = wanted
        del self._absent[wanted]
        self.parts[wanted] = head.parts
        if len(head.marks) >= len(self.marks.get(rank, ())):
            self.marks[rank] = head.marks
        return Keep(which, rank, parts)
