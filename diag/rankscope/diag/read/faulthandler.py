"""Reads what Python's ``faulthandler`` writes: on a signal, on a timeout, on a fatal error.

Its form (CPython 3.10 to 3.14): ``Thread 0x<pthread id> (most recent call first):``, the one that ran the
handler ``Current thread 0x...``, 3.14 with ``[name]``; or ``Stack (most recent call first):`` for one thread.
Frames leaf first, ``  File "f", line n in name`` without a comma before *in*; ``  ...`` after 100 frames, and
``...`` after 100 threads. Threads stand newest first and are separated by a blank line; it writes no process
and no kernel thread id. It knows no rank and no log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from rankscope.diag.model import ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.threads import ThreadDraft, shared_frame, split_processes

ANCHORS: Final = (b"most recent call first",)
HEADER: Final = re.compile(
    r"(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}|Current thread's C stack trace|Stack)"
    r"(?: \[.{0,100}\])? \(most recent call first\):$"
)
_THREAD: Final = re.compile(
    r"(Current thread|Thread) 0x([0-9a-fA-F]{1,16})(?: \[(.{0,100})\])? \(most recent call first\):$"
)
_STACK: Final = re.compile(r"Stack (?:of .{0,100} )?\(most recent call first\):$")
_C_STACK: Final = re.compile(r"Current thread's C stack trace \(most recent call first\):$")
_FRAME: Final = re.compile(r' {1,3}File (?:"(.*)"|(\?\?\?)|(\S.*)), line (\d{1,9}|\?\?\?) in (.*)$')
_BINARY: Final = re.compile(r' {1,3}Binary file "(.*)"(?:, at (.*?))?(?: \[(0x[0-9a-fA-F]+)\])?$')
_BEGINNINGS: Final = re.compile(
    r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$|Fatal Python error: |Python runtime state: "
)
_CUT_FRAMES: Final = frozenset({"...", "<truncated rest of calls>", "<timeout>"})
_UNREADABLE: Final = frozenset(
    {"<no Python frame>", "<tstate is freed>", "<invalid frame>", "<freed interpreter>"}
)
_EXTENSIONS: Final = "Extension modules: "
_COLLECTING: Final = "Garbage-collecting"


def opens(text: str) -> bool:
    """Whether a dump, or a part of one, begins with this line."""
    return any(header.match(text) for header in (_THREAD, _STACK, _C_STACK))


class FaulthandlerSection:
    """Reads the lines from a thread's header on, as long as they are faulthandler's."""

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a run of threads; see ``PySpySection``."""
        self._origin = origin
        self._tally = tally
        self._drafts: list[ThreadDraft] = []
        self._is_separated = True
        self._begins = True

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the dump."""
        text = line.text
        if not text.strip():
            self._is_separated = True
            return True
        if text[0] == " ":
            return self._feed_indented(text)
        if found := _THREAD.match(text):
            self._open_thread(line, identity=int(found[2], 16), name=found[3])
            return True
        if _STACK.match(text):
            self._open_thread(line, identity=0, name=None)
            return True
        if _C_STACK.match(text):
            self._open_thread(line, identity=-1, name="C stack of the current thread")
            return True
        if text == "...":
            self._tally.note("faulthandler shows 100 threads only: further threads are missing")
            return True
        if _BEGINNINGS.match(text):
            self._begins = True
            return text.startswith("Timeout")
        return text.startswith(_EXTENSIONS)

    def _open_thread(self, line: Line, *, identity: int, name: str | None) -> None:
        if self._tally.may_add_thread():
            stack = ThreadStack(thread_id=0, name=name, frames=())
            draft = ThreadDraft(
                stack,
                identity=identity,
                line=line.number,
                detached=not self._is_separated,
                begins=self._begins,
            )
            self._drafts.append(draft)
        self._is_separated = self._begins = False

    def _feed_indented(self, text: str) -> bool:
        if not self._drafts:
            return False
        draft = self._drafts[-1]
        if found := _FRAME.match(text):
            file = found[1] if found[1] is not None else found[2] or found[3]
            number = int(found[4]) if found[4] != "???" else 0
            if self._tally.may_keep(text):
                draft.add(shared_frame(found[5], file, number), self._tally)
            return True
        if found := _BINARY.match(text):
            if self._tally.may_keep(text):
                symbol = (found[2] or "").partition("+")[0] or found[3] or "???"
                draft.add(shared_frame(symbol, found[1], 0, "native"), self._tally)
            return True
        return self._feed_mark(text.strip(), draft)

    def _feed_mark(self, word: str, draft: ThreadDraft) -> bool:
        if word == _COLLECTING:
            draft.stack = msgspec.structs.replace(draft.stack, collecting=True)
        elif word in _CUT_FRAMES:
            self._tally.note("faulthandler shows 100 frames of a thread only: its outer frames are missing")
            draft.is_cut = True
        elif word not in _UNREADABLE:
            return word.startswith("<cannot ")
        return True

    def close(self) -> Sequence[StackDump]:
        """The processes that were read."""
        dumps: list[StackDump] = []
        for line, threads in split_processes(self._drafts, self._tally):
            if self._tally.may_add_dump():
                dumps.append(
                    StackDump(
                        source="faulthandler",
                        threads=tuple(threads),
                        pid=self._origin.pid,
                        rank=self._origin.rank,
                        line=line,
                        is_native=any(frame.kind == "native" for one in threads for frame in one.frames),
                        channel=self._origin.channel,
                    )
                )
        return dumps
