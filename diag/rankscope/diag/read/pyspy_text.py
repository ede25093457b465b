"""Reads the text of ``py-spy dump``: plain, native, with locals, with subprocesses.

Its form (py-spy 0.4, measured): ``Process <pid>: <command line>``, ``Python v<version> (<executable>)``,
perhaps ``Parent Process <pid>: ...``, an empty line, then threads; frames leaf first at four blanks,
variables deeper. The command line and a thread's name may have line ends in them. A snippet without the
process's header is read, too. It knows no rank and no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rankscope.diag.model import ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.threads import NO_MAIN, ThreadDraft, shared_frame, with_end_marked, with_main

ANCHORS: Final = (b" (idle)", b" (active", b"Python v")
# Headers at the end of a line, with anything before them.
HEADER: Final = re.compile(
    r'(?:Thread (?:0x[0-9A-Fa-f]{1,16}|\d{1,10}) \((?:idle|active|active\+gil)\)(?:: ".*)?'
    r"|Python v\d+\.\d+\S{0,20} \([^()]{1,400}\))$"
)
NO_THREADS: Final = "py-spy wrote no thread of it"
_PYTHON: Final = re.compile(r"Python v\d+\.\d+\S* \(.*\)$")
_PROCESS: Final = re.compile(r"Process (\d{1,10}): ?(.*)$")
_PARENT: Final = re.compile(r" {0,4}Parent Process (\d{1,10}): ?(.*)$")
_THREAD: Final = re.compile(
    r'Thread (0x[0-9A-Fa-f]{1,16}|\d{1,10}) \((idle|active|active\+gil)\)(?:: "(.*?)("?))?$'
)
_FRAME: Final = re.compile(r" {1,6}(\S.*) \(([^()]*?)(?::(\d{1,9}))?\)$")
_ODD_FRAME: Final = re.compile(r" {1,6}(\S+) \((\S.*?)(?::(\d{1,9}))?\)$")  # a file with brackets in its name
_VARIABLES: Final = re.compile(r" {4,10}(?:Arguments|Locals):$")
_VARIABLE: Final = re.compile(r" {7,}([^\s:][^:]{0,200}): ?(.*)$")
_SEPARATOR: Final = re.compile(r"-{20,}$")
_NATIVE_FILE: Final = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inc|rs|s|S|tcc)$|\.so(?:[.\d]*)$")
_MAIN_NAME: Final = "MainThread"
_LONGEST_NAME: Final = 8  # lines that a thread's name may have


def opens(text: str) -> bool:
    """Whether a dump, or a part of one, begins with this line."""
    return _THREAD.match(text) is not None or _PYTHON.match(text) is not None


class PySpySection:
    """Reads the lines from a header on, as long as they are py-spy's."""

    def __init__(self, origin: Origin, tally: Tally, recent: Iterable[Line] = ()) -> None:
        """Start a dump.

        Args:
            origin: whose lines they are.
            tally: what is kept and what is not.
            recent: lines before this one, oldest first; the process's header is looked for in them.
        """
        self._origin = origin
        self._tally = tally
        self._process = _process_before(recent)
        self._parent = 0
        self._has_python = False
        self._drafts: list[ThreadDraft] = []
        self._seen: set[int] = set()
        self._line = 0
        self._in_variables = False
        self._name: list[str] | None = None  # a thread's name whose end is on a later line
        self._dumps: list[StackDump] = []

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the dump."""
        text = line.text
        if self._name is not None and self._feed_name(text):
            return True
        if text[:1] == " ":
            return self._feed_indented(text)
        return self._feed_header(line)

    def _feed_header(self, line: Line) -> bool:
        text = line.text
        if found := _THREAD.match(text):
            self._open_thread(found, line)
            return True
        if _PYTHON.match(text):
            if self._has_python or self._drafts:
                return False  # the next process: its header stands in lines that were not taken
            self._has_python = True
            self._line = self._process[2] or line.number
            return True
        if self._has_python and not self._drafts and (parent := _PARENT.match(text)):
            self._parent = int(parent[1])
            return True
        return not text.strip() or _SEPARATOR.match(text) is not None

    def _feed_indented(self, text: str) -> bool:
        if not text.strip():
            return True
        if not self._drafts:
            parent = _PARENT.match(text)
            self._parent = int(parent[1]) if parent else self._parent
            return parent is not None
        draft = self._drafts[-1]
        if _VARIABLES.match(text):
            self._in_variables = bool(draft.frames)
            return self._in_variables
        if self._in_variables and (value := _VARIABLE.match(text)):
            if self._tally.may_keep(text):
                draft.add_variable(value[1], value[2], self._tally)
            return True
        found = _FRAME.match(text) or _ODD_FRAME.match(text)
        if found is None:
            return False
        self._in_variables = False
        if self._tally.may_keep(text):
            file, number = found[2], int(found[3] or 0)
            is_native = not number or _NATIVE_FILE.search(file) is not None
            kind = "native" if is_native and not file.endswith(".py") else "python"
            draft.add(shared_frame(found[1], file, number, kind), self._tally)
        return True

    def _open_thread(self, found: re.Match[str], line: Line) -> None:
        known = found[1]
        identity = int(known, 16) if known.startswith("0x") else int(known)
        if identity in self._seen:
            self._finish()
        self._seen.add(identity)
        self._line = self._line or line.number
        self._in_variables = False
        name = found[3]
        self._name = [name] if name is not None and not found[4] else None
        if not self._tally.may_add_thread():
            return
        stack = ThreadStack(
            thread_id=0 if known.startswith("0x") else identity,
            name=name,
            frames=(),
            # An idle thread may own the GIL, and the text does not show it.
            holds_gil=True if found[2] == "active+gil" else None,
            active=found[2] != "idle",
        )
        self._drafts.append(ThreadDraft(stack, identity=identity, line=line.number))

    def _feed_name(self, text: str) -> bool:
        """Add a line to a thread's name; not when it is clear that the name was cut off."""
        name, self._name = self._name, None
        if name is None or opens(text) or _FRAME.match(text) or len(name) >= _LONGEST_NAME:
            return False
        ended = text.endswith('"')
        name.append(text[:-1] if ended else text)
        draft = self._drafts[-1] if self._drafts else None
        if draft is not None:
            draft.stack = msgspec.structs.replace(draft.stack, name="\n".join(name))
        self._name = None if ended else name
        return True

    def _finish(self) -> None:
        drafts, self._drafts = self._drafts, []
        pid, title, _ = self._process
        threads = [draft.build() for draft in drafts]
        pid = pid or next((one.thread_id for one in threads if one.name == _MAIN_NAME), 0)
        ended_in: ThreadStack | None = None
        if threads and (threads[-1].name is not None or not threads[-1].frames):
            threads, ended_in = with_end_marked(threads, self._tally)
        marked = _with_main(threads, pid=pid, ended_in=ended_in)
        if marked and not any(thread.is_main for thread in marked):
            self._tally.note(NO_MAIN)
        if (threads or self._has_python) and self._tally.may_add_dump():
            self._dumps.append(
                StackDump(
                    source="py-spy",
                    threads=marked,
                    pid=pid or self._origin.pid,
                    rank=self._origin.rank,
                    title=title,
                    line=self._line,
                    is_native=any(frame.kind == "native" for one in marked for frame in one.frames),
                    has_variables=any(draft.has_variables for draft in drafts),
                    trouble="" if threads else NO_THREADS,
                    parent=self._parent,
                    channel=self._origin.channel,
                )
            )
        self._process, self._parent, self._has_python = (0, "", 0), 0, False
        self._seen, self._line = set(), 0

    def close(self) -> Sequence[StackDump]:
        """The processes that were read."""
        self._finish()
        return self._dumps


def _process_before(lines: Iterable[Line]) -> tuple[int, str, int]:
    """Process id, command line and line number of the header that ends the lines, else ``(0, "", 0)``."""
    kept = list(lines)
    for at in range(len(kept) - 1, -1, -1):
        if found := _PROCESS.match(kept[at].text):
            title = "\n".join([found[2], *(line.text for line in kept[at + 1 :])])
            return int(found[1]), title.rstrip("\n"), kept[at].number
        if opens(kept[at].text):
            break
    return 0, "", 0


def _with_main(
    threads: Sequence[ThreadStack], *, pid: int, ended_in: ThreadStack | None
) -> tuple[ThreadStack, ...]:
    """By the process's id, else by Python's name: a vfork child shows its parent's thread ids (measured)."""
    named = [at for at, thread in enumerate(threads) if thread.name == _MAIN_NAME]
    if any(pid == thread.thread_id for thread in threads) or len(named) != 1:
        return with_main(threads, pid=pid, ended_in=ended_in)
    return tuple(msgspec.structs.replace(thread, is_main=at == named[0]) for at, thread in enumerate(threads))
