"""Reads stacks that programs print themselves, from ``sys._current_frames`` and ``traceback``.

There are as many headers as authors: ``# Thread: MainThread(140...)``, ``# ThreadID: 140...``,
``-- Thread ID: 140... ---``, ``Thread ID: 0x7f...``, ``--- Stack for thread 140... ---``. The frames are
alike: ``File "f", line n, in name`` or ``File: "f", ...``, outermost first, each with its text on the next
line. The thread that prints shows the printer at its end, which is left out. It knows no rank and no log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rankscope.diag.model import Frame, ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.threads import ThreadDraft, shared_frame, split_processes

ANCHORS: Final = (b'", line ',)
FRAME: Final = re.compile(
    r'(\s*)File:? "([^"\n]{1,1000})", line (\d{1,9}), in (\S{1,300})(?: (\S.{0,300}))?$'
)
_HEADER: Final = re.compile(
    r"[\s#*=-]{0,80}(?:(?:stack|stack ?trace|trace|traceback|dump)(?: of| for)? )?thread(?:[ _]?id)?\b"
    r"(?=.{0,100}?(?:\b\d{4,20}\b|0x[0-9a-f]{4,16}|MainThread)).{0,160}$",
    re.IGNORECASE,
)
_TOOLS: Final = re.compile(r"\((?:idle|active|most recent)")
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]{4,16}|\b\d{4,20}\b")
_MAIN: Final = "MainThread"
_MARKS: Final = re.compile(r"[\s~^]+$")
_PRINTS: Final = re.compile(r"_current_frames|(?:extract|format|print|walk)_stack")
_ROOTS: Final = frozenset({"<module>", "_run_module_as_main", "_bootstrap"})
_LONGEST_SOURCE: Final = 300


def opens(text: str) -> bool:
    """Whether a thread may begin with this line: what follows decides."""
    return _HEADER.match(text) is not None and _TOOLS.search(text) is None


class PrintedSection:
    """Reads threads from a header on, as long as frames and their texts follow."""

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a run of threads; see ``PySpySection``."""
        self._origin = origin
        self._tally = tally
        self._drafts: list[ThreadDraft] = []
        self._margin = 0
        self._wants_source = False
        self._is_over = False

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the dump."""
        text = line.text
        if opens(text):
            self._open_thread(line)
            return True
        if self._is_over:
            return False
        if found := FRAME.match(text):
            self._add_frame(found)
            return True
        if not text.strip() or (self._drafts[-1].frames and _MARKS.match(text)):
            return True
        if self._wants_source and len(text) - len(text.lstrip()) > self._margin:
            self._drafts[-1].replace_last(source=text.strip()[:_LONGEST_SOURCE])
            self._wants_source = False
            return True
        self._is_over = True  # what follows may be the frames of a traceback
        return False

    def _open_thread(self, line: Line) -> None:
        self._wants_source = False
        self._is_over = not self._tally.may_add_thread()
        if self._is_over:
            return
        number = _NUMBER.search(line.text)
        name = _MAIN if _MAIN in line.text else None
        identity = int(number[0], 16 if number[0].startswith("0x") else 10) if number else 0
        stack = ThreadStack(thread_id=0, name=name, frames=())
        self._drafts.append(ThreadDraft(stack, identity=identity, line=line.number, root_first=True))

    def _add_frame(self, found: re.Match[str]) -> None:
        self._margin = len(found[1])
        self._wants_source = not found[5]
        if self._tally.may_keep(found[0]):
            frame = shared_frame(found[4], found[2], int(found[3]), source=(found[5] or "").strip())
            self._drafts[-1].add(frame, self._tally)
        else:
            self._wants_source = False

    def close(self) -> Sequence[StackDump]:
        """The processes that were read."""
        drafts = [draft for draft in self._drafts if draft.frames]
        if not drafts:
            return []
        for draft in drafts:
            if draft.frames[-1].function in _ROOTS and draft.frames[0].function not in _ROOTS:
                draft.frames.reverse()
            draft.frames = _without_printer(draft.frames)
        dumps: list[StackDump] = []
        for line, threads in split_processes(drafts, self._tally):
            if self._tally.may_add_dump():
                dumps.append(
                    StackDump(
                        source="printed",
                        threads=tuple(threads),
                        pid=self._origin.pid,
                        rank=self._origin.rank,
                        line=line,
                        channel=self._origin.channel,
                    )
                )
        return dumps


def _without_printer(frames: list[Frame]) -> list[Frame]:
    """The frames, outermost first, without the function that printed them and those that called it."""
    at = next((at for at in range(len(frames) - 1, -1, -1) if _PRINTS.search(frames[at].source)), None)
    if at is None or not at:
        return frames
    while at > 1 and re.search(rf"\b{re.escape(frames[at].function)}\(", frames[at - 1].source):
        at -= 1
    return frames[:at]
