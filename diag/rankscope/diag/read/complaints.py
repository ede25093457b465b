"""Reads what the tools say when they cannot read a process: the reason that a rank has no stack.

py-spy's ``Error:`` with its causes, pystack's ``Engine error`` and the advice below it, gdb's ``ptrace``. The
texts mislead at times (a process that is gone reads like a missing capability): the reader gives them as
they are. It must not know what became of the process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rankscope.diag.read import StackDump, StackSource
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin

ANCHORS: Final = (b"Error: Failed to ", b"Permission Denied: Try running", b"Engine error: ", b"ptrace: ")
_MOST_LINES: Final = 64  # of one complaint; pystack's advice has 20, a Rust backtrace 30
_MOST_CAUSES: Final = 8
_PYSPY: Final = re.compile(
    r"Error: (Failed to (?:get process executable|get stack traces|suspend process|find python version).*"
    r"|Permission Denied: Try running.*)$"
)
_PYSTACK: Final = re.compile(
    r"\W{0,4}(?:Engine error: (.*?)|(Could not (?:determine python|read the contents).*?))\W{0,4}$"
)
_ATTACH: Final = re.compile(r"WARNING\(\w{1,40}\): (Failed to attach to thread (\d{1,10}): .*)$")
_GDB: Final = re.compile(r"(ptrace: .{1,200}|Could not attach to process\..*)$")
_GDB_TRACED: Final = re.compile(r"warning: process (\d{1,10}) is (?:already traced by process|a zombie).*$")
_CAUSE: Final = re.compile(r" {1,6}\d{1,3}: (.*)$")
_HEADING: Final = re.compile(r"(?:Caused by|Stack backtrace):$")
# pystack's advice of what to do, below its error.
_ADVICE: Final = re.compile(
    r"The specified process cannot be traced|has insufficient privileges|Unprivileged processes cannot"
    r"|to or those running set-user-ID|Alternatively, the process may|If your uid matches|can do one of the"
    r"|\* | {2}\S"
)
_PIDS: Final = (
    re.compile(r"/proc/(\d{1,10})/"),
    re.compile(r"Pid\((\d{1,10})\)"),
    re.compile(r"\bpid (\d{1,10})"),
)


def opens(text: str) -> bool:
    """Whether a tool's complaint begins with this line."""
    return any(pattern.match(text) for pattern in (_PYSPY, _PYSTACK, _ATTACH, _GDB, _GDB_TRACED))


class ComplaintSection:
    """Reads the lines of one complaint."""

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a complaint; see ``PySpySection``."""
        self._origin = origin
        self._tally = tally
        self._source: StackSource = "py-spy"
        self._words: list[str] = []
        self._pid = 0
        self._line = 0
        self._lines = 0
        self._in_backtrace = False
        self._has_error = False

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the complaint."""
        text = line.text
        self._lines += 1
        if self._lines > _MOST_LINES:
            return False
        if not self._line:
            self._line = line.number
            return self._feed_first(text)
        if not text.strip():
            return True
        if self._source == "py-spy":
            return self._feed_cause(text)
        if self._source == "pystack":
            return self._feed_pystack(text) if not self._has_error else _ADVICE.match(text) is not None
        found = None if self._has_error else _GDB.match(text)
        if found:
            self._say(found[1], ends=True)
        return found is not None or text.startswith(("If your uid matches", "again as the root user"))

    def _feed_first(self, text: str) -> bool:
        if found := _PYSPY.match(text):
            self._say(found[1], ends=True)
        elif _PYSTACK.match(text) or _ATTACH.match(text):
            self._source = "pystack"
            return self._feed_pystack(text)
        else:
            self._source = "gdb"
            self._say(text.removeprefix("warning: "), ends=_GDB.match(text) is not None)
        return True

    def _feed_pystack(self, text: str) -> bool:
        if found := _ATTACH.match(text):
            self._pid = self._pid or int(found[2])
            if not self._words:
                self._say(found[1])
            return True
        if found := _PYSTACK.match(text):
            self._say(found[1] or found[2] or "", ends=True)
            return True
        return False

    def _feed_cause(self, text: str) -> bool:
        if _HEADING.match(text):
            self._in_backtrace = text.startswith("Stack")
            return True
        found = _CAUSE.match(text)
        if found and not self._in_backtrace and len(self._words) < _MOST_CAUSES:
            self._say(found[1])
        # A frame of the backtrace may have its place in the source on a line of its own.
        return found is not None or (self._in_backtrace and text.startswith("             at "))

    def _say(self, words: str, *, ends: bool = False) -> None:
        text = words.strip()
        if text and not any(text in words for words in self._words) and self._tally.may_keep(text):
            self._words.append(text[:500])
        for pattern in _PIDS:
            if not self._pid and (found := pattern.search(text)):
                self._pid = int(found[1])
        self._has_error = self._has_error or ends

    def close(self) -> Sequence[StackDump]:
        """The process that could not be read."""
        if not self._words or not self._tally.may_add_dump():
            return ()
        return (
            StackDump(
                source=self._source,
                pid=self._pid or self._origin.pid,
                rank=self._origin.rank,
                line=self._line,
                trouble=f"{self._source}: {': '.join(self._words)}",
                channel=self._origin.channel,
            ),
        )
