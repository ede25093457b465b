"""How much of an input is kept, so that a log of any size, or a hostile one, is read in bounded memory.

What meets a bound is counted under a sentence of its own: silence about lost input is a fault. This module
knows no format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DISTINCT_PROBLEMS: Final = 256
_OTHER: Final = "further problems of other kinds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper limits of what one input may give.

    A thread of CPython has some tens of frames, 1,000 at its recursion limit; a job of 10,000 ranks with 30
    threads each has 300,000 threads. A flight record of 2,000 entries is 1 MB of JSON (measured), 20 MB with
    stacks.

    Attributes:
        line_bytes: of one line; what is longer is cut, unless it is JSON.
        document_bytes: of one JSON text, or of one pickle.
        text_bytes: of the lines that dumps are made of, all dumps together.
        dumps: processes with stacks.
        threads: of all dumps together.
        frames: of one thread; the innermost are kept.
        variables: of one thread.
        records: flight records.
        facts: log facts.
        channels: sources of lines that are in the middle of something at one time.
    """

    line_bytes: int = 1 << 20
    document_bytes: int = 1 << 25
    text_bytes: int = 1 << 28
    dumps: int = 50_000
    threads: int = 500_000
    frames: int = 4_096
    variables: int = 10_000
    records: int = 20_000
    facts: int = 100_000
    channels: int = 4_096


class Tally:
    """What was kept of one input, and what was not, in one place for all its readers."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds: Final = bounds or Bounds()
        self.problems: Final[dict[str, int]] = {}
        self._text_bytes = 0
        self._dumps = 0
        self._threads = 0

    def note(self, problem: str, count: int = 1) -> None:
        """Count something that was not understood or not kept."""
        if problem not in self.problems and len(self.problems) >= _DISTINCT_PROBLEMS:
            problem = _OTHER
        self.problems[problem] = self.problems.get(problem, 0) + count

    def may_keep(self, text: str) -> bool:
        """Whether one more line of a dump may be kept; counted when not."""
        self._text_bytes += len(text)
        if self._text_bytes <= self.bounds.text_bytes:
            return True
        self.note(f"lines of dumps left out: there are more than {self.bounds.text_bytes} bytes of them")
        return False

    def may_add_thread(self) -> bool:
        """Whether one more thread may be kept; counted when not."""
        self._threads += 1
        if self._threads <= self.bounds.threads:
            return True
        self.note(f"threads left out: the input shows more than {self.bounds.threads}")
        return False

    def may_add_dump(self) -> bool:
        """Whether one more process may be kept; counted when not."""
        self._dumps += 1
        if self._dumps <= self.bounds.dumps:
            return True
        self.note(f"processes left out: the input shows more than {self.bounds.dumps}")
        return False
