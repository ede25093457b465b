"""Of one node's event log, what the summaries of a job are made of, in bounded memory.

Events come one by one as the log is read on. Those that no summary tells of, long values and jobs before the
last one of a run id are let go at once; what is left has a budget, and the oldest of it goes first. What was
let go for the budget is said in ``content``. Pure: it reads no file.
"""

from __future__ import annotations

import bisect
from typing import Final

import msgspec

from rankscope.diag.history.runs import RUN_AGAIN
from rankscope.diag.store.events import Event, LogContent

BUDGET_BYTES: Final = 16 << 20
"""Of the lines of all that is kept of a log: some 15,000 events, from which an answer is made in a second."""
_OVERHEAD_BYTES: Final = 500
"""What a small event takes beside its line."""
_LONG_BYTES: Final = 64 << 10
_LONG_VALUE_BYTES: Final = 8 << 10
_MOST_NUMBERS: Final = 1000
"""Of unreadable lines, and of gaps, that are told one by one."""
_UNTOLD: Final = frozenset({"message"})
"""What no summary tells of; of many in a row the last one is kept, as the last sign of life of its node."""


class KeptEvents:
    """What is kept of one log.

    Args:
        budget_bytes: of the lines of all that is kept.
    """

    def __init__(self, *, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._kept: list[tuple[Event, int]] = []
        self._cost = 0
        self._let_go = 0
        self._job_at = 0
        self._numbers = _Numbers()
        self._unnumbered = 0
        self._unreadable: list[int] = []
        self._more_unreadable = 0
        self._too_long = 0

    def take(self, event: Event, size_bytes: int) -> None:
        """The next event of the log.

        Args:
            event: the event.
            size_bytes: of its line.
        """
        number, name = event.number, event.name
        if number:
            self._numbers.add(number)
        else:
            self._unnumbered += 1
        if name == "job.started" and self._is_over():
            self._forget_job()
        elif len(self._kept) > self._job_at + 1 and self._kept[-1][0].name in _UNTOLD:
            self._pop()  # it only said until when the node was heard of, and this one says it better
        if name in _UNTOLD:
            self._push(msgspec.structs.replace(event, data={}), 0)
            return
        if name == "cleared":
            self._forget_suspicion()
        self._push(_shortened(event, size_bytes), min(size_bytes, _LONG_BYTES))
        if self._cost > self._budget:
            self._forget_oldest()

    def unreadable(self, line: int, *, too_long: bool = False) -> None:
        """A line that is no event.

        Args:
            line: its number, from 1.
            too_long: whether it was not even read.
        """
        if too_long:
            self._too_long += 1
        elif len(self._unreadable) < _MOST_NUMBERS:
            self._unreadable.append(line)
        else:
            self._more_unreadable += 1

    def content(self, *, torn_line: int | None = None) -> LogContent:
        """What is kept, as the content of a log.

        Args:
            torn_line: number of a last line without its end.
        """
        unreadable = self._unreadable if torn_line is None else [*self._unreadable, torn_line]
        return LogContent(
            tuple(event for event, _cost in self._kept),
            tuple(unreadable),
            self._numbers.missing(self._unnumbered),
            tuple(self._doubts()),
        )

    @property
    def skipped(self) -> int:
        """How many lines were no event."""
        return len(self._unreadable) + self._more_unreadable + self._too_long

    def _doubts(self) -> list[str]:
        doubts: list[str] = []
        if self._more_unreadable:
            doubts.append(f"{self._more_unreadable} further lines cannot be read")
        if self._too_long:
            lines = "line is" if self._too_long == 1 else "lines are"
            doubts.append(f"{self._too_long} {lines} too long to be an event, and skipped")
        if self._let_go:
            doubts.append(
                f"the log is too long for a summary: its first {self._let_go} events (of restarts, cycles, "
                "incidents) are not in it; diag history has them"
            )
        return doubts

    def _push(self, event: Event, size_bytes: int) -> None:
        cost = size_bytes + _OVERHEAD_BYTES
        self._kept.append((event, cost))
        self._cost += cost

    def _pop(self) -> None:
        self._cost -= self._kept.pop()[1]

    def _is_over(self) -> bool:
        """Whether the job before is over, so that the next agent begins another one."""
        for event, _cost in reversed(self._kept[self._job_at :]):
            if event.name == "job.ended":
                return event.data.get("exit_code") != RUN_AGAIN
            if event.name == "job.started":
                return False
        return False

    def _forget_job(self) -> None:
        """Of the job before, leave that it was: its first event, and its end."""
        job = self._kept[self._job_at :]
        end = next(one for one in reversed(job) if one[0].name == "job.ended")
        left = [job[0], end] if end is not job[0] else [end]
        self._cost += sum(cost for _event, cost in left) - sum(cost for _event, cost in job)
        self._kept[self._job_at :] = left
        self._job_at = len(self._kept)

    def _forget_suspicion(self) -> None:
        """Of suspicions that were cleared one after the other, the last one tells as much as all."""
        names = [event.name for event, _cost in self._kept[-2:]]
        if names == ["cleared", "suspected"]:
            self._pop()
            self._pop()

    def _forget_oldest(self) -> None:
        """Let a quarter of the budget go; the start of the present agent is the last that would go."""
        over = self._cost - self._budget * 3 // 4
        last = range(len(self._kept) - 1, -1, -1)
        started = next((at for at in last if self._kept[at][0].name == "job.started"), -1)
        kept: list[tuple[Event, int]] = []
        for at, (event, cost) in enumerate(self._kept):
            if over > 0 and at != started:
                over -= cost
                self._let_go += 1
            else:
                kept.append((event, cost))
        self._kept = kept
        self._cost = sum(cost for _event, cost in kept)
        self._job_at = 0


def _shortened(event: Event, size_bytes: int) -> Event:
    """The event without what no summary tells, and without values that are too long to be kept."""
    data = event.data
    if event.name == "decision":
        data = {name: value for name, value in data.items() if name != "asked"}
    if size_bytes > _LONG_BYTES:
        data = {name: value for name, value in data.items() if _size(value) <= _LONG_VALUE_BYTES}
    return event if data is event.data else msgspec.structs.replace(event, data=data)


def _size(value: object) -> int:
    return len(msgspec.json.encode(value)) if isinstance(value, str | list | dict) else 0


class _Numbers:
    """A set of numbers, most of which follow on each other."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def add(self, number: int) -> None:
        if self._last and number == self._last[-1] + 1:
            self._last[-1] = number
            return
        at = bisect.bisect_right(self._first, number)
        if at and number <= self._last[at - 1]:
            return
        joins_before = at > 0 and self._last[at - 1] == number - 1
        joins_after = at < len(self._first) and self._first[at] == number + 1
        if joins_before and joins_after:
            self._last[at - 1] = self._last.pop(at)
            del self._first[at]
        elif joins_before:
            self._last[at - 1] = number
        elif joins_after:
            self._first[at] = number
        else:
            self._first.insert(at, number)
            self._last.insert(at, number)

    def missing(self, before: int) -> tuple[tuple[int, int], ...]:
        """First and last of each gap, the numbers up to ``before`` counted as there."""
        gaps: list[tuple[int, int]] = []
        end = before
        for first, last in zip(self._first, self._last, strict=True):
            if first > end + 1:
                gaps.append((end + 1, first - 1))
            end = max(end, last)
        return tuple(gaps[:_MOST_NUMBERS])
