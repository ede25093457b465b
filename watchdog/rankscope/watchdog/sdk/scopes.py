"""Which stages are open, and which limit holds. Pure: no thread, clock or page.

In one line of execution (a thread, a task) the innermost stage counts; of several lines the largest
limit, and off (-1) in any of them is off. A stage may end in another line than it began in, and in any
order: it is removed by identity. A change costs the logarithm of the number of open stages.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from typing import Final
from weakref import ref

from rankscope.watchdog.sdk.config import OFF

_STALE_A_STAGE: Final = 4
_STALE: Final = 64
"""An index that has taken in more than so many entries in all, and for each open stage, is made anew."""


class OpenStage:
    """One entry into a stage.

    Attributes:
        seconds: its limit, -1 for off.
        name: what it is called in the page.
        line: the line of execution that entered it, compared by identity.
        ended: set when it is left; an ended stage counts nowhere, even while it is still listed.
    """

    __slots__ = ("__weakref__", "ended", "line", "name", "seconds")

    def __init__(self, seconds: float, name: str, line: object) -> None:
        self.seconds = seconds
        self.name = name
        self.line = line
        self.ended = False


class _Index:
    """Finds the limit among many stages. Made from the list of stages, and thrown away when in doubt.

    Every line's innermost stage stands in the heap. So may others, which are told apart when they come up.
    """

    def __init__(self) -> None:
        self.taken_in = 0
        self._lines: dict[object, list[ref[OpenStage]]] = {}
        self._heap: list[tuple[float, int, ref[OpenStage], object]] = []

    def enter(self, stage: OpenStage) -> None:
        """Put a stage innermost in its line."""
        entry = ref(stage)
        self._lines.setdefault(stage.line, []).append(entry)
        self._push(stage, entry)

    def settle(self, line: object) -> None:
        """Uncover what is innermost in ``line`` now that stages in it have ended."""
        stack = self._lines.get(line)
        if stack is None:
            return
        covered = False
        while stack:
            stage = stack[-1]()
            if stage is not None and not stage.ended:
                if covered:
                    self._push(stage, stack[-1])
                return
            stack.pop()
            covered = True
        del self._lines[line]

    def first(self) -> OpenStage | None:
        """The stage whose limit holds."""
        while self._heap:
            _order, _number, entry, line = self._heap[0]
            self.settle(line)
            stack = self._lines.get(line)
            if stack and stack[-1] is entry:
                return entry()
            heapq.heappop(self._heap)
        return None

    def _push(self, stage: OpenStage, entry: ref[OpenStage]) -> None:
        self.taken_in += 1
        order = -math.inf if stage.seconds == OFF else -stage.seconds
        # The number before what cannot be compared: the heap never runs code of Python's.
        heapq.heappush(self._heap, (order, self.taken_in, entry, stage.line))


class Scopes:
    """All open stages of a process. Its owner holds a lock, but may be interrupted by itself.

    A generator that is thrown away, or a signal handler, may enter or leave a stage in the middle of any of
    these methods, in the same thread, and may raise there. So what is true stands in two containers that are
    changed by single calls into C, and every change has a number: an index that has not seen the last number
    through is made anew from them.

    A handler that raises just when a block is being left takes the block away, and nobody says so. So the
    stages are held weakly: one whose ``hang_detect`` is gone is over. (A finalizer of ours would be one more
    place where what a handler raises gets lost; a deque's ``append`` is none, no handler runs in it.)
    """

    def __init__(self) -> None:
        self._stages: dict[ref[OpenStage], None] = {}
        self.over: deque[OpenStage | ref[OpenStage]] = deque()
        """What has ended since the last look, or went without being left. An attribute: every step asks."""
        self._index = _Index()
        self._numbers = itertools.count(1)
        self._changes = self._indexed = 0

    def open(self) -> list[OpenStage]:
        """The open stages, oldest first."""
        self._settle()
        stages = [entry() for entry in list(self._stages)]
        return [stage for stage in stages if stage is not None and not stage.ended]

    def enter(self, stage: OpenStage) -> None:
        """Open a stage, innermost in its line."""
        index, number = self._begin()
        self._stages[ref(stage, self.over.append)] = None
        if index is not None:
            index.enter(stage)
        self._finish(index, number)

    def end(self, stage: OpenStage) -> None:
        """Say that a stage is over, without the owner's lock; ending it again does nothing."""
        self.over.append(stage)
        stage.ended = True

    def leave(self, stage: OpenStage) -> None:
        """End a stage, wherever it stands."""
        self.end(stage)
        self._settle()

    def limit(self) -> tuple[float | None, str]:
        """The limit that holds and its stage's name; ``None`` and ``""`` when no stage is open."""
        while True:  # again when a signal handler has changed something meanwhile
            self._settle()
            if self._indexed != self._changes or self._is_stale():
                self._index_anew()
            index, number = self._begin()
            if index is not None:
                break
        stage = index.first()
        self._finish(index, number)
        return (None, "") if stage is None else (stage.seconds, stage.name)

    def _begin(self) -> tuple[_Index | None, int]:
        """Number a change, which makes the index doubtful until it is through; the index if it was not."""
        index = self._index if self._indexed == self._changes else None
        self._changes = number = next(self._numbers)
        return index, number

    def _finish(self, index: _Index | None, number: int) -> None:
        """Trust the index again, unless it was doubtful before or a signal handler has replaced it."""
        if index is not None and index is self._index:
            self._indexed = number
        else:
            self._changes = next(self._numbers)

    def _settle(self) -> None:
        """Take out what is over."""
        while self.over:
            index, number = self._begin()
            try:
                over = self.over.popleft()
            except IndexError:  # a signal handler has done it
                return
            if isinstance(over, ref):
                self._stages.pop(over, None)
                continue  # whose line it was is not known any more: the index stays doubtful
            over.ended = True
            self._stages.pop(ref(over), None)
            if index is not None:
                index.settle(over.line)
            self._finish(index, number)

    def _is_stale(self) -> bool:
        return self._index.taken_in > _STALE + _STALE_A_STAGE * len(self._stages)

    def _index_anew(self) -> None:
        number, index = self._changes, _Index()
        for entry in list(self._stages):
            stage = entry()
            if stage is None or stage.ended:
                self._stages.pop(entry, None)
            else:
                index.enter(stage)
        self._index, self._indexed = index, number
