"""Reads what ``pystack remote`` and ``pystack core`` print: plain, native, with locals, not blocking.

Its form (pystack 1.7, measured and read in its source): ``Traceback for thread <tid> (<comm>) [<flags>] (most
recent call last):``, frames **outermost first** with the text of their line below, variables deeper. Values
of variables may have line ends in them. It writes no process: threads are separated by a blank line, and
several runs in one file by nothing. It knows no rank and no log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rankscope.diag.model import Frame, ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.threads import END_MISSING, ThreadDraft, shared_frame, split_processes

ANCHORS: Final = (b" for thread ",)
HEADER: Final = re.compile(
    r"(?:Traceback for thread \d{1,10} .{0,200}\(most recent call last\):"
    r"|The frame stack for thread \d{1,10} is empty)$"
)
_THREAD: Final = re.compile(
    r"Traceback for thread (\d{1,10})(?: \((.*?)\))?(?: \[([^\]]*)\])? \(most recent call last\):$"
)
_EMPTY: Final = re.compile(r"The frame stack for thread (\d{1,10}) is empty$")
_PYTHON: Final = re.compile(r' {2,6}\(Python\) File "(.*)", line (-?\d{1,9}|None), in (.*)$')
_C: Final = re.compile(
    r' {2,6}\(C\) File "(.*?)", line (-?\d{1,9}), in (.+?)( \(inlined\))?(?: \(([^()]*)\))?$'
)
# A library that was replaced while it ran: `(/usr/lib/libx.so (deleted))`.
_C_DELETED: Final = re.compile(r' {2,6}\(C\) File "(.*?)", line (-?\d{1,9}), in (.+) \((/.*)\)$')
_VARIABLES: Final = re.compile(r" {4,7}(?:Arguments|Locals):$")
_VARIABLE: Final = re.compile(r" {6,9}([^\s:][^:]{0,200}): ?(.*)$")
_INTERPRETER: Final = re.compile(
    r" {1,3}(?:In the main interpreter|In interpreter \d+|Not currently attached to any interpreter)"
    r"(?: \[(.*)\])?$"
)
_UNMERGED: Final = "* - Unable to merge native stack due to insufficient native information - *"
_UNKNOWN: Final = "???"
# The end of a line that may be a stack's last: of a statement, of a C frame, of an empty stack.
_WHOLE: Final = re.compile(r"[):]$|^ *\(C\) File .* in \S+$|is empty$|^$")
_LONGEST_VALUE: Final = 200  # lines of a value
_QUOTES: Final = ("'", '"')


def opens(text: str) -> bool:
    """Whether a dump, or a part of one, begins with this line."""
    return _THREAD.match(text) is not None or _EMPTY.match(text) is not None


class PystackSection:
    """Reads the lines from a thread's header on, as long as they are pystack's."""

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a run of threads; see ``PySpySection``."""
        self._origin = origin
        self._tally = tally
        self._drafts: list[ThreadDraft] = []
        self._is_separated = True
        self._in_variables = False
        self._awaits_source = False
        self._open_value = 0  # lines that the last value has had, while its end is on a later one
        self._has_source = False
        self._last = ""
        self._is_torn = False

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the dump."""
        is_taken = self._feed(line)
        if is_taken:
            self._last = line.text
        return is_taken

    def tear(self, *, behind: bool) -> None:
        """The input ended in the middle of a line: the last one of the dump, or one ``behind`` it."""
        self._is_torn = behind or not _WHOLE.search(self._last) or _is_unbalanced(self._last)

    def _feed(self, line: Line) -> bool:
        text = line.text
        if found := _THREAD.match(text):
            self._open_thread(int(found[1]), found[2], found[3], line)
            return True
        if found := _EMPTY.match(text):
            self._open_thread(int(found[1]), None, None, line)
            return True
        if self._feed_frame(text) or self._feed_variable(text):
            return True
        if not text.strip():
            self._is_separated = True
            self._in_variables = self._awaits_source = False
            return True
        return self._feed_other(text)

    def _open_thread(self, tid: int, comm: str | None, flags: str | None, line: Line) -> None:
        self._in_variables = self._awaits_source = False
        self._open_value = 0
        if self._tally.may_add_thread():
            held, collecting = _flags(flags)
            stack = ThreadStack(thread_id=tid, name=comm, frames=(), holds_gil=held, collecting=collecting)
            self._drafts.append(
                ThreadDraft(stack, line=line.number, root_first=True, detached=not self._is_separated)
            )
        self._is_separated = False

    def _feed_frame(self, text: str) -> bool:
        if not self._drafts or "File " not in text:
            return False
        draft = self._drafts[-1]
        if found := _PYTHON.match(text):
            number = int(found[2]) if found[2] != "None" else 0
            frame = shared_frame(found[3], found[1], max(number, 0))
        elif found := _C.match(text) or _C_DELETED.match(text):
            frame = _native(found)
        else:
            return False
        if self._tally.may_keep(text):
            draft.add(frame, self._tally)
        self._awaits_source = frame.kind == "python"
        self._in_variables, self._open_value = False, 0
        return True

    def _feed_variable(self, text: str) -> bool:
        draft = self._drafts[-1] if self._drafts else None
        if draft is None:
            return False
        if _VARIABLES.match(text):
            self._in_variables, self._awaits_source, self._open_value = bool(draft.frames), False, 0
            return self._in_variables
        if not self._in_variables:
            return False
        if self._open_value:
            return self._continue_value(draft, text)
        if found := _VARIABLE.match(text):
            if self._tally.may_keep(text):
                draft.add_variable(found[1], found[2], self._tally)
                self._open_value = int(_is_open(found[2]))
            return True
        return False

    def _continue_value(self, draft: ThreadDraft, text: str) -> bool:
        """Add a line to a string that has line ends in it."""
        value = draft.extend_variable(text) if self._tally.may_keep(text) else ""
        ended = not _is_open(value) or self._open_value >= _LONGEST_VALUE
        self._open_value = 0 if ended else self._open_value + 1
        return True

    def _feed_other(self, text: str) -> bool:
        if self._awaits_source and text.startswith("      "):
            self._awaits_source = False
            self._has_source = True
            self._drafts[-1].replace_last(source=text.strip())
            return True
        if found := _INTERPRETER.match(text):
            if self._drafts and found[1] is not None:
                held, collecting = _flags(found[1])
                stack = self._drafts[-1].stack
                self._drafts[-1].stack = ThreadStack(
                    stack.thread_id, stack.name, (), holds_gil=held, collecting=collecting
                )
            return True
        if text == _UNMERGED:
            self._tally.note("pystack could not tell where native frames belong: it left them out")
            return True
        return False

    def close(self) -> Sequence[StackDump]:
        """The processes that were read."""
        dumps: list[StackDump] = []
        if self._drafts and (self._is_torn or (self._awaits_source and self._has_source)):
            # Innermost frames come last: what the thread does is not known.
            self._tally.note(END_MISSING)
            self._drafts[-1].is_cut = True
        for line, threads in split_processes(self._drafts, self._tally):
            if self._tally.may_add_dump():
                dumps.append(
                    StackDump(
                        source="pystack",
                        threads=tuple(threads),
                        pid=next((one.thread_id for one in threads if one.is_main), self._origin.pid),
                        rank=self._origin.rank,
                        line=line,
                        is_native=any(frame.kind == "native" for one in threads for frame in one.frames),
                        has_variables=any(thread.variables for thread in threads),
                        channel=self._origin.channel,
                    )
                )
        return dumps


def _flags(flags: str | None) -> tuple[bool | None, bool | None]:
    """Whether the GIL was held, and whether garbage was collected; ``None`` where nothing is said."""
    if flags is None:
        return None, None
    words = {word.strip() for word in flags.split(",")}
    return "Has the GIL" in words, "Garbage collecting" in words


def _is_unbalanced(text: str) -> bool:
    return text.count("(") != text.count(")")


def _is_open(value: str) -> bool:
    """Whether a string's end is on a later line."""
    text = value.lstrip("b")
    return text.startswith(_QUOTES) and (len(text) == 1 or not text.rstrip(".").endswith(text[0]))


def _native(found: re.Match[str]) -> Frame:
    library = found[found.re.groups] or ""
    file = found[1] if found[1] != _UNKNOWN else library
    symbol = found[3].removesuffix(" (inlined)")
    return shared_frame(symbol, file, max(int(found[2]), 0), "native")
