"""Finds JSON documents between lines, on one line or pretty-printed over many, and reads what they hold.

py-spy's ``--json`` is pretty-printed, a flight record is one line. A document that is neither is given back
as lines, for there may be something else in them. One that was cut off gives what was there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from rankscope.diag.model import FlightRecord, ThreadStack
from rankscope.diag.read import StackDump
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.flight_record import looks_like_record, parse_record
from rankscope.diag.read.lines import Line, Origin
from rankscope.diag.read.pyspy import parse_pyspy_dumps
from rankscope.diag.read.threads import NO_MAIN

ANCHORS: Final = (b"os_thread_id", b"pg_config", b'seq_id"')
# A line of py-spy's JSON near its beginning, with anything before it.
HEADER: Final = re.compile(r'\s{1,16}"(?:pid|thread_id|os_thread_id)": \d{1,20},$')
_HEAD: Final = 4_096  # characters that tell what a document is
_PEEK: Final = 12  # lines of a pretty-printed document after which it must look like one of ours
# A line of a pretty-printed document, or a document on one line; not `[INFO] ...` or `{'loss': 1}`.
_PIECE: Final = re.compile(
    r'\s*(?:"|[\]}]|\{\s*(?:$|["}])|\[\s*(?:$|[\[\]{"]|-?\d+[,\]])|(?:-?\d[\d.eE+-]*|true|false|null),?\s*$)'
)
_OPENING: Final = re.compile(r"\s*(?:\[\s*)?(?:\{|\[\s*$|$)")
_OURS: Final = ("os_thread_id", "owns_gil", "pg_config", "pg_status", "collective_seq_id", "comm_lib_version")


def opens(text: str) -> bool:
    """Whether a document may begin with this line."""
    return text[:1] in {"[", "{"} and _OPENING.match(text) is not None


def is_one_document(text: str) -> bool:
    """Whether the line alone looks like a dump of ours."""
    head = text[:_HEAD]
    return any(word in head for word in _OURS)


class DocumentSection:
    """Collects the lines of one document.

    Attributes:
        records: flight records that were read when it was closed.
        returned: its lines when it was none of ours.
    """

    def __init__(self, origin: Origin, tally: Tally) -> None:
        """Start a document; see ``PySpySection``."""
        self.records: list[FlightRecord] = []
        self.returned: list[Line] = []
        self._origin = origin
        self._tally = tally
        self._lines: list[Line] = []
        self._size = 0
        self._depth = 0
        self._is_ended = False
        self._is_ours = False
        self._is_too_long = False

    def feed(self, line: Line) -> bool:
        """Take a line that belongs to the document."""
        text = line.text
        if self._is_ended or not _PIECE.match(text):
            return False
        self._is_ours = self._is_ours or is_one_document(text)
        self._depth += _depth(text)
        self._is_ended = self._depth <= 0
        self._size += len(text)
        if self._size > self._tally.bounds.document_bytes:
            self._is_too_long = True
            return True
        self._lines.append(line)
        return True

    @property
    def is_over(self) -> bool:
        """Whether its last bracket was read, or it is none of ours."""
        return self._is_ended or (len(self._lines) >= _PEEK and not self._is_ours)

    def close(self) -> Sequence[StackDump]:
        """The processes that it holds; flight records are in ``records``."""
        if not self._is_ours:
            self.returned = self._lines
            return ()
        if self._is_too_long:
            self._tally.note(f"a JSON document was cut at {self._tally.bounds.document_bytes} bytes")
        data = "\n".join(line.text for line in self._lines).encode("utf-8", "replace")
        number = self._lines[0].number
        self._lines = []
        if looks_like_record(data[:_HEAD]) or b'"os_thread_id"' not in data:
            record, problems = parse_record(data)
            self._note(problems)
            if record is not None:
                self.records.append(record)
            return ()
        dumps, problems = parse_pyspy_dumps(data)
        self._note(problems)
        for dump in dumps:
            if dump.threads and not any(thread.is_main for thread in dump.threads):
                self._tally.note(NO_MAIN)
        return [self._placed(dump, number) for dump in dumps if self._tally.may_add_dump()]

    def _note(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self._tally.note(problem)

    def _placed(self, dump: StackDump, number: int) -> StackDump:
        origin = self._origin
        threads = tuple(self._cut(thread) for thread in dump.threads if self._tally.may_add_thread())
        return replace(
            dump,
            threads=threads,
            pid=dump.pid or origin.pid,
            rank=origin.rank,
            line=number,
            channel=origin.channel,
        )

    def _cut(self, thread: ThreadStack) -> ThreadStack:
        limit = self._tally.bounds.frames
        if len(thread.frames) <= limit:
            return thread
        self._tally.note(f"frames left out: a thread shows more than {limit}", len(thread.frames) - limit)
        variables = tuple(one for one in thread.variables if one.frame < limit)
        return msgspec.structs.replace(thread, frames=thread.frames[:limit], variables=variables, is_cut=True)


def _depth(text: str) -> int:
    """Brackets opened less brackets closed, strings left out; in linear time on any text."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    bare = "".join(text.split('"')[::2])
    return bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}")
