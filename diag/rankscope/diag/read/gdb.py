"""Reads gdb's ``thread apply all bt`` and ``py-bt``, alone or one after the other in one text.

Its form (gdb 13, measured, and older): ``Thread n (Thread 0x.. (LWP tid) "comm"):``, in older ones without
the name, ``Thread n (process pid):`` or ``Thread n (LWP tid):``; then ``#k  0xaddr in symbol (args) at
file:line`` or ``from library``, or ``Traceback (most recent call first):`` and Python frames. Where both are
there, the Python frames take their places beside the interpreter's own. It knows no rank and no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.diag.model import FrameVariables, ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.gdb_frames import PLACE, merge_frames, native_frame
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.threads import NO_MAIN, ThreadDraft, shared_frame, with_main

ANCHORS: Final = (b"#0  ", b"Unable to locate python frame", b"most recent call first")
HEADER: Final = re.compile(
    r"(?:Thread \d{1,6} \((?:Thread 0x[0-9a-f]{1,16} )?\(?(?:LWP|process) \d{1,10}\)?.{0,64}\):"
    r"|Traceback \(most recent call first\):)$"
)
_THREAD: Final = re.compile(
    r"Thread (\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16})?(?: ?\(?(LWP|process) (\d{1,10})\)?)?(?: \"(.*?)\")?"
    r"(?: \([A-Za-z ]{1,32}\))?\):$"
)
_FRAME: Final = re.compile(r"#(\d{1,6}) +(?:0x[0-9a-f]{1,16} in )?(\S.*)$")
_FIRST: Final = re.compile(r"#0  +?(?:0x[0-9a-f]{1,16} in )?\S.* \(.*\)(?: (?:at|from) \S+)?$")
_TRACEBACK: Final = "Traceback (most recent call first):"
_PY_FRAME: Final = re.compile(r' {1,3}File "?(.*?)"?, line (-?\d{1,9}), in (.*)$')
_PY_CALL: Final = re.compile(r" {1,3}(<.*>)$")
_AT_REMOTE: Final = re.compile(r" at remote 0x[0-9a-f]+")
_LOCAL: Final = re.compile(r" {8}([A-Za-z_]\w{0,200}) = (.*)$")
_GONE: Final = re.compile(r"\[Inferior \d{1,6} \(process (\d{1,10})\) detached\]$")
_NOISE: Final = re.compile(
    r"\[(?:New|Switching to|Current) .*\]$|\(More stack frames follow\.\.\.\)$|Backtrace stopped: "
    r"|Unable to locate python frame$|No locals\.$|--Type <RET> |Python Exception |\(gdb\)"
)
_PY_NOISE: Final = frozenset(
    {"(unable to read python frame information)", "(not a python frame)", "(frame information optimized out)"}
)
_LONGEST_FRAME: Final = 64  # lines that gdb may break a frame's arguments over


def opens(text: str) -> bool:
    """Whether a dump, or a part of one, begins with this line."""
    return _THREAD.match(text) is not None or text == _TRACEBACK or _FIRST.match(text) is not None


@dataclass(slots=True)
class _Part:
    """What one header and the lines below gave."""

    number: int  # gdb's own, 0 for no header
    tid: int
    comm: str | None
    line: int
    native: ThreadDraft = field(default_factory=lambda: ThreadDraft(ThreadStack(0, None, ())))
    python: ThreadDraft = field(default_factory=lambda: ThreadDraft(ThreadStack(0, None, ())))
    collecting: bool | None = None


class GdbSection:
    """Reads the lines from a thread's header on, as long as they are gdb's."""

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a dump; see ``PySpySection``."""
        self._origin = origin
        self._tally = tally
        self._parts: list[_Part] = []
        self._in_python = False
        self._awaits_source = False
        self._broken: list[str] = []  # a frame whose end is on a later line
        self._dumps: list[StackDump] = []

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the dump."""
        text = line.text
        if self._broken and self._feed_broken(text):
            return True
        if found := _THREAD.match(text):
            self._open_thread(line, found)
            return True
        if found := _FRAME.match(text):
            return self._feed_frame(found, line)
        if text == _TRACEBACK:
            if not self._parts or self._parts[-1].python.frames:
                self._open_part(_Part(0, 0, None, line.number))
            self._in_python, self._awaits_source = True, False
            return True
        if found := _GONE.match(text):
            self._finish(pid=int(found[1]))
            return True
        if self._in_python and self._feed_python(text):
            return True
        return self._feed_other(text)

    def _open_thread(self, line: Line, found: re.Match[str]) -> None:
        number, tid = int(found[1]), int(found[3] or 0)
        if self._is_next_process(number, tid):
            self._finish()
        self._open_part(_Part(number, tid, found[4], line.number))

    def _open_part(self, part: _Part) -> None:
        self._in_python = self._awaits_source = False
        if self._tally.may_add_thread():
            self._parts.append(part)

    def _is_next_process(self, number: int, tid: int) -> bool:
        """Whether this header begins another process: its number was another thread's, or turns back."""
        same = [part for part in self._parts if part.number == number]
        if same:
            return all(part.tid != tid for part in same)
        if len(self._parts) < 2 or tid in {part.tid for part in self._parts}:  # noqa: PLR2004 - a direction
            return False
        before, last = self._parts[-2].number, self._parts[-1].number
        return (number - last > 0) != (last - before > 0)

    def _feed_frame(self, found: re.Match[str], line: Line) -> bool:
        if not self._parts or (found[1] == "0" and self._parts[-1].native.frames):
            if not opens(line.text):
                return False
            if not self._parts or not self._parts[-1].number:
                self._finish()
                self._open_part(_Part(0, 0, None, line.number))
        self._in_python = False
        text = found[2]
        if not (PLACE.search(text) or text.endswith(")")):
            self._broken = [text]
            return True
        self._add_frame(text)
        return True

    def _feed_broken(self, text: str) -> bool:
        """Put the pieces of a frame together again."""
        joined, self._broken = self._broken, []
        if text[:1] != " " or len(joined) >= _LONGEST_FRAME:
            self._add_frame(" ".join(joined))
            return False
        joined.append(text.strip())
        if text.endswith(")") or PLACE.search(text):
            self._add_frame(" ".join(joined))
        else:
            self._broken = joined
        return True

    def _add_frame(self, text: str) -> None:
        if self._parts and self._tally.may_keep(text):
            self._parts[-1].native.add(native_frame(text), self._tally)

    def _feed_python(self, text: str) -> bool:
        part = self._parts[-1] if self._parts else None
        if part is None:
            return False
        if found := _PY_FRAME.match(text):
            if self._tally.may_keep(text):
                part.python.add(shared_frame(found[3], found[1], max(int(found[2]), 0)), self._tally)
            self._awaits_source = True
            return True
        if self._awaits_source and text.startswith("    "):
            self._awaits_source = False
            if part.python.frames:
                part.python.replace_last(source=text.strip())
            return True
        self._awaits_source = False
        if found := _PY_CALL.match(text):
            if self._tally.may_keep(text):
                # A call of a C function: the only sign of it in a Python stack.
                part.python.add(shared_frame(_AT_REMOTE.sub("", found[1]), "", 0, "native"), self._tally)
            return True
        word = text.strip()
        if word == "Garbage-collecting":
            part.collecting = True
            return True
        if word in _PY_NOISE:
            self._tally.note(f"gdb: {word}")
            return True
        return word == "Waiting for the GIL"

    def _feed_other(self, text: str) -> bool:
        if not text.strip() or _NOISE.match(text):
            return True
        if self._parts and self._parts[-1].native.frames and (found := _LOCAL.match(text)):
            self._parts[-1].native.add_variable(found[1], found[2], self._tally)
            return True
        return text.startswith("        ") and bool(self._parts)

    def _finish(self, *, pid: int = 0) -> None:
        if self._broken:
            self._add_frame(" ".join(self._broken))
            self._broken = []
        parts, self._parts = self._parts, []
        self._in_python = self._awaits_source = False
        if not parts or not self._tally.may_add_dump():
            return
        # In a core file, thread 1 is the one that crashed: what a stack begins with tells more.
        threads = with_main([_together(group) for group in _by_thread(parts)], pid=pid)
        first = next((part.tid for part in parts if part.number == 1), 0)
        if first and not any(thread.is_main for thread in threads):
            threads = with_main(threads, pid=first)
        if not any(thread.is_main for thread in threads):
            self._tally.note(NO_MAIN)
        pid = pid or next((thread.thread_id for thread in threads if thread.is_main), 0)
        self._dumps.append(
            StackDump(
                source="gdb",
                threads=threads,
                pid=pid or self._origin.pid,
                rank=self._origin.rank,
                line=parts[0].line,
                is_native=any(part.native.frames for part in parts),
                has_variables=any(part.native.has_variables for part in parts),
                channel=self._origin.channel,
            )
        )

    def close(self) -> Sequence[StackDump]:
        """The processes that were read."""
        self._finish()
        return self._dumps


def _by_thread(parts: Iterable[_Part]) -> list[list[_Part]]:
    """The parts of each thread: ``bt`` and ``py-bt`` name it by the same id."""
    groups: dict[tuple[int, int], list[_Part]] = {}
    for at, part in enumerate(parts):
        groups.setdefault((part.tid, part.number) if part.tid or part.number else (-1, at), []).append(part)
    return list(groups.values())


def _together(parts: Sequence[_Part]) -> ThreadStack:
    """One thread of its parts: where ``bt`` and ``py-bt`` are both there, their frames in one stack."""
    native = next((part.native.build() for part in parts if part.native.frames), None)
    python = next((part.python.build() for part in parts if part.python.frames), None)
    stack = native or python or ThreadStack(0, None, ())
    frames, variables = stack.frames, stack.variables
    if native and python:
        frames, moved = merge_frames(native.frames, python.frames)
        variables = tuple(FrameVariables(moved[one.frame], one.values) for one in native.variables)
    return msgspec.structs.replace(
        stack,
        thread_id=parts[0].tid,
        name=parts[0].comm,
        frames=frames,
        variables=variables,
        collecting=next((part.collecting for part in parts if part.collecting is not None), None),
    )
