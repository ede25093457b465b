"""Reads the reports of Horovod's stall inspector: which ranks did not submit what the others wait for.

Each report begins with one sentence. New versions list the missing ranks with their tensors ("3: [a, b]"),
those before them the tensors with their missing ranks, the oldest the tensors with the ranks that are ready:
the others are missing as far as a higher rank is ready. The newest report counts.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.read import LogFact

HEADER: Final = "waiting for remainder of ranks for more than"
_SECONDS: Final = re.compile(HEADER + r" (\d{1,9}) seconds")
_MISSING: Final = re.compile(r"\[missing ranks: ?([\d, ]{1,40000})\]")
_READY: Final = re.compile(r"\[ready ranks: ?([\d, ]{1,40000})\]")
_RANK: Final = re.compile(r"\s{0,4}(\d{1,7})!?: ?\[")
_LISTS: Final = re.compile(r"(?:Missing|Stalled) ranks: *$|Stalled ops:")
_LONGEST: Final = 500
_MOST_RANKS: Final = 4_096
_FOREIGN: Final = 4  # lines of others in the middle of a report


class StallReader:
    """One writer's lines.

    Attributes:
        is_open: whether the next line may still belong to a report.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._seconds = 0.0
        self._time: float | None = None
        self._facts: dict[int, LogFact] = {}
        self._foreign = 0

    def feed(self, text: str, *, number: int, time: float | None) -> None:
        """Take a line."""
        begins = _SECONDS.search(text)
        if begins:
            self.is_open, self._facts, self._foreign = True, {}, 0
            self._seconds, self._time = float(begins[1]), time
        if not self.is_open:
            return
        ranks = _ranks_of(text)
        for rank in ranks:
            if len(self._facts) < _MOST_RANKS:
                self._facts.setdefault(rank, self._fact(rank, text, number))
        if not (ranks or begins or _LISTS.search(text) or not text.strip()):
            self._foreign += 1
            self.is_open = self._foreign <= _FOREIGN

    def close(self) -> list[LogFact]:
        """The missing ranks of the newest report."""
        return list(self._facts.values())

    def _fact(self, rank: int, text: str, number: int) -> LogFact:
        said = text[max(text.find("Stalled ops:"), 0) :]
        said = f"missing ranks: {said}" if _RANK.match(text) else said
        return LogFact("stalled", said.strip()[:_LONGEST], number, rank, 0, self._time, seconds=self._seconds)


def _ranks_of(text: str) -> list[int]:
    """The ranks that a line of a report says are missing."""
    named = _RANK.match(text)
    if named:
        return [int(named[1])]
    found = [rank for one in _MISSING.finditer(text) for rank in _numbers(one[1])]
    for one in _READY.finditer(text):
        ready = set(_numbers(one[1]))
        found += sorted(set(range(max(ready, default=0))) - ready)
    return list(dict.fromkeys(found))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.replace(",", " ").split()[:_MOST_RANKS] if int(one) < _MOST_RANKS]
