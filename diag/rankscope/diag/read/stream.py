"""Reads any input: one dump, or a log of any size with dumps of many tools and many ranks in its middle.

Memory is bounded (``bounds``), time is linear in the input. Most of a log tells nothing, so blocks are
searched for anchors, and only near them are lines taken apart: without what stands before them, each goes to
the channel of its source (``prefixes``, ``channels``). It must not know a path, a process or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rankscope.diag.read import (
    Contents,
    complaints,
    documents,
    faulthandler,
    gdb,
    printed_stacks,
    pyspy_text,
    pystack,
)
from rankscope.diag.read.anchors import BEFORE_BYTES, AnchorScan
from rankscope.diag.read.bounds import Bounds, Tally
from rankscope.diag.read.channels import Found
from rankscope.diag.read.flight_record import looks_like_record, parse_record
from rankscope.diag.read.log_facts import ANCHORS as FACT_ANCHORS
from rankscope.diag.read.sources import Sources

_BLOCK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 4_096
_TAIL_BYTES: Final = 1 << 16  # kept of the end of a line that is too long: what a progress bar drew last
_RANKS_BYTES: Final = 1 << 20  # of lines that tell nothing, in which ranks are looked for
_RANK: Final = re.compile(rb"^(?:\[\w{1,64}\]:)?\[rank(\d{1,7})\]:", re.MULTILINE)
_PICKLE: Final = b"\x80"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_STACK_ANCHORS: Final = (
    *pyspy_text.ANCHORS,
    *pystack.ANCHORS,
    *faulthandler.ANCHORS,
    *gdb.ANCHORS,
    *printed_stacks.ANCHORS,
    *complaints.ANCHORS,
    *documents.ANCHORS,
)
ANCHORS: Final = tuple(dict.fromkeys((*_STACK_ANCHORS, *FACT_ANCHORS)))


def read_contents(chunks: Iterable[bytes]) -> Contents:
    """Read an input that comes in pieces of any size.

    Returns:
        What was found; the same for every way to cut the input into pieces. Never raises for what it reads.
    """
    stream = DumpStream()
    for chunk in chunks:
        stream.feed(chunk)
    return stream.close()


class DumpStream:
    """Reads one input, piece by piece."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._tally = Tally(bounds)
        self._found = Found(self._tally)
        self._sources = Sources(self._found)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size_bytes = 0
        self._number = 0  # of the last line that was read or passed over
        self._carry = b""
        self._long: list[bytes] = []  # a line that may be a document and has no end yet
        self._long_bytes = 0
        self._tail: bytes | None = None  # the end of a line that is too long
        self._pickle: list[bytes] | None = None
        self._looked_bytes = 0
        self._has_begun = False

    def feed(self, data: bytes) -> None:
        """Read the next piece."""
        self._size_bytes += len(data)
        if not self._has_begun and not self._waiting and _is_pickle(data):
            self._has_begun, self._pickle = True, []
        if self._pickle is not None:
            self._collect_pickle(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes < _BLOCK_BYTES:
            return
        waiting = b"".join(self._waiting)
        end = len(waiting) - len(waiting) % _BLOCK_BYTES
        for at in range(0, end, _BLOCK_BYTES):
            self._take(waiting[at : at + _BLOCK_BYTES], is_last=False)
        self._waiting = [waiting[end:]]
        self._waiting_bytes = len(waiting) - end

    def close(self) -> Contents:
        """Everything that was found; nothing is fed afterwards."""
        end = b"".join(self._waiting) or self._carry
        is_torn = bool(end) and not end.endswith(b"\n")
        self._take(b"".join(self._waiting), is_last=True)
        self._waiting = []
        if self._pickle is not None:
            self._read_pickle()
        self._sources.settle(is_torn=is_torn)
        if not self._number and self._pickle is None:
            self._tally.note("the input is empty")
        found = self._found
        return Contents(
            dumps=tuple(sorted(found.dumps, key=lambda dump: dump.line)),
            records=tuple(found.records),
            facts=tuple(sorted(found.facts, key=lambda fact: fact.line)),
            problems=dict(self._tally.problems),
            lines=self._number,
            size_bytes=self._size_bytes,
            ranks=frozenset(found.ranks),
        )

    def _take(self, block: bytes, *, is_last: bool) -> None:
        if not self._has_begun:
            self._has_begun = True
            block = block.removeprefix(_BYTE_ORDER_MARK)
            if _is_pickle(block):
                self._pickle = []
        if self._pickle is not None:
            self._collect_pickle(block)
            return
        block = self._after_long_line(block, is_last=is_last)
        data = self._carry + block if self._carry else block
        end = len(data) if is_last else data.rfind(b"\n") + 1
        read = self._read_block(data, end, is_last=is_last)
        self._carry = data[read:]
        if not is_last and len(data) - max(end, read) > self._tally.bounds.line_bytes:
            self._begin_long_line(max(end, read) - read)

    # Long lines

    def _begin_long_line(self, at: int) -> None:
        """The line at ``at`` of what is carried is too long: collect it if it may be a document."""
        if at:  # what is before it waited for an anchor that was not found
            self._pass_over(self._carry, 0, at)
        line, self._carry = self._carry[at:], b""
        body = self._sources.body(line[:_HEAD_BYTES]).lstrip()
        if documents.opens(body):
            self._long, self._long_bytes = [line], len(line)
        else:
            self._tail = line[-_TAIL_BYTES:]

    def _after_long_line(self, block: bytes, *, is_last: bool) -> bytes:
        """What of the block is behind the long line that was being read, if any."""
        if self._tail is None and not self._long:
            return block
        end = block.find(b"\n")
        is_ended = end >= 0 or is_last
        piece, rest = (block[: end + 1], block[end + 1 :]) if end >= 0 else (block, b"")
        if self._long:
            self._long.append(piece)
            self._long_bytes += len(piece)
            limit = self._tally.bounds.document_bytes
            if is_ended or self._long_bytes > limit:
                line, self._long = b"".join(self._long), []
                if self._long_bytes > limit:
                    self._tally.note(f"a line was cut at {limit} bytes")
                    line = line[:limit]
                self._read_line(line)
                if not is_ended:
                    self._number -= 1  # the rest of the same line
                    self._tail = b""
            return rest
        tail = ((self._tail or b"") + piece)[-_TAIL_BYTES:]
        if not is_ended:
            self._tail = tail
            return rest
        self._tail = None
        self._tally.note(f"lines longer than {self._tally.bounds.line_bytes} bytes were cut")
        self._read_line(tail)
        return rest

    # Blocks

    def _read_block(self, data: bytes, end: int, *, is_last: bool) -> int:
        """Read the whole lines of ``data[:end]``; where the next block goes on."""
        scan = AnchorScan(ANCHORS, data)
        at = 0
        until = 0  # lines before this are looked at, for there is an anchor in one of them
        while at < end:
            if self._sources.is_busy or at < until:
                stop = data.find(b"\n", at, end) + 1 or end
                self._read_line(data[at:stop])
                at = stop
                continue
            anchor = scan.first(at)
            if anchor is None or anchor >= end:
                # An anchor of the next block may want the lines before it.
                stop = end if is_last else max(at, data.rfind(b"\n", at, max(at, end - BEFORE_BYTES)) + 1)
                self._pass_over(data, at, stop)
                return stop
            start = scan.look_from(anchor, at)
            self._pass_over(data, at, start)
            at, until = start, anchor + 1
        return end

    def _pass_over(self, data: bytes, start: int, stop: int) -> None:
        if stop > start:
            self._number += data.count(b"\n", start, stop)
            self._number += not data.endswith(b"\n", start, stop)
            if self._looked_bytes < _RANKS_BYTES:
                end = min(stop, start + _RANKS_BYTES - self._looked_bytes)
                self._looked_bytes += end - start
                self._found.ranks.update(int(found[1]) for found in _RANK.finditer(data, start, end))

    def _read_line(self, raw: bytes) -> None:
        self._number += 1
        self._sources.read(raw, number=self._number)

    # Pickles

    def _collect_pickle(self, block: bytes) -> None:
        if self._pickle is None:
            return
        limit = self._tally.bounds.document_bytes
        room = limit - sum(len(piece) for piece in self._pickle)
        if len(block) > room:
            self._tally.note(f"a pickle was cut at {limit} bytes")
            block = block[: max(room, 0)]
        if block:
            self._pickle.append(block)

    def _read_pickle(self) -> None:
        record, problems = parse_record(b"".join(self._pickle or []))
        for problem in problems:
            self._tally.note(problem)
        if record is not None:
            self._found.add_record(record)


def _is_pickle(head: bytes) -> bool:
    return head.startswith(_PICKLE) and looks_like_record(head[:_HEAD_BYTES])
