"""Reads the stack that a watchdog prints of a call that ran out of time: where the rank made it.

Its lines (``#0 all_reduce from /.../distributed_c10d.py:2810``) stand behind the line that announces them and
lack what stands before that one: it is one message of several lines. From torch's flight recorder, to 2.13.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.model import Frame

HEADER: Final = re.compile(r"Stack trace of the failed collective: *$")
LINE: Final = re.compile(r"#(\d{1,4}) (\S.{0,300}?) from (\S.{0,1000}):(\d{1,9})\s*$")
_MOST: Final = 500


class CallStackReader:
    """One writer's stack, leaf first.

    Attributes:
        is_open: whether the next line may belong to it.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._frames: list[Frame] = []

    def begin(self) -> None:
        """The next line is the first of a stack."""
        self.is_open, self._frames = True, []

    def feed(self, text: str) -> bool:
        """Take a line; whether it belongs to the stack. Another one ends it."""
        found = LINE.match(text) if self.is_open else None
        if found is None or int(found[1]) != len(self._frames) or len(self._frames) >= _MOST:
            self.is_open = False
            return False
        self._frames.append(Frame(found[2], found[3], int(found[4])))
        return True

    def take(self) -> tuple[Frame, ...]:
        """What was read; once."""
        frames, self._frames = tuple(self._frames), []
        return frames
