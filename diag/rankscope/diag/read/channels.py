"""One source of lines: gives each line to the dump that it belongs to, else to the reader of facts.

A dump may be interrupted by lines of other writers on the same stream, so it stays open for some lines that
are none of its own. It must not know where lines come from, nor what a dump means.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from rankscope.diag.model import FlightRecord
from rankscope.diag.read import (
    LogFact,
    StackDump,
    complaints,
    documents,
    faulthandler,
    gdb,
    printed_stacks,
    pyspy_text,
    pystack,
)
from rankscope.diag.read.bounds import Tally
from rankscope.diag.read.lines import Line, Origin, Section, shift
from rankscope.diag.read.log_facts import ANCHORS as FACT_ANCHORS
from rankscope.diag.read.log_facts import FactReader

_FOREIGN_LINES: Final = 20  # of the same source, that may stand in the middle of a dump
_RECENT_LINES: Final = 64
_LONGEST_RECENT: Final = 4_096  # characters kept of a line before a dump
_LONGEST_LINE: Final = 1 << 16  # characters of a line that is no document
_WIDEST_MARGIN: Final = 64  # blanks that may stand before a whole dump
_NEAR: Final = 80  # lines between a dump without threads and the tool's complaint
_STRAY: Final = "lines of stacks whose form is not known"
# What the first lines of all formats begin with.
_FIRSTS: Final = frozenset("TPCS#[{EWwp💀-*=stD")
_COMPLAINING: Final = frozenset("ECWwp💀")
_FACT_WORDS: Final = re.compile("|".join(re.escape(anchor.decode()) for anchor in FACT_ANCHORS))


@dataclass(slots=True)
class Found:
    """What all channels of one input have found."""

    tally: Tally
    dumps: list[StackDump] = field(default_factory=list[StackDump])
    records: list[FlightRecord] = field(default_factory=list[FlightRecord])
    facts: list[LogFact] = field(default_factory=list[LogFact])
    ranks: set[int] = field(default_factory=set[int])

    def add_record(self, record: FlightRecord) -> None:
        """Keep a flight record, if there is room."""
        limit = self.tally.bounds.records
        if len(self.records) < limit:
            self.records.append(record)
        else:
            self.tally.note(f"flight records left out: the input holds more than {limit}")

    def add_facts(self, facts: tuple[LogFact, ...]) -> None:
        """Keep facts, as far as there is room."""
        limit = self.tally.bounds.facts
        room = max(limit - len(self.facts), 0)
        self.facts.extend(facts[:room])
        if len(facts) > room:
            self.tally.note(f"log facts left out: the input holds more than {limit}", len(facts) - room)


class Channel:
    """Reads the lines of one source in their order.

    Attributes:
        recent: its last lines that belong to no dump.
        seen: for whoever owns it, to note when it was last heard of.
    """

    def __init__(self, origin: Origin, found: Found) -> None:
        self.seen = 0
        self._last = 0
        self.recent: deque[Line] = deque(maxlen=_RECENT_LINES)
        self._origin = origin
        self._found = found
        self._section: Section | None = None
        self._margin = 0
        self._foreign = 0
        self._facts: FactReader | None = None
        self._in_fact = False
        self._partial: list[str] = []
        self._partial_size = 0
        self._newest = -1  # index of its newest dump

    @property
    def is_busy(self) -> bool:
        """Whether its next line may belong to something that has begun."""
        return self._section is not None or self._in_fact or bool(self._partial)

    @property
    def awaits_stack(self) -> bool:
        """Whether the next lines may be a stack of its, without what stands before its other lines."""
        return self._facts is not None and self._in_fact and self._facts.awaits_stack

    @property
    def lists_ranks(self) -> bool:
        """Whether what looks like the number of a task before its next lines may be text of its own."""
        return self._facts is not None and self._in_fact and self._facts.lists_ranks

    def feed(self, line: Line, *, stamp: str = "", is_partial: bool = False) -> bool:
        """Read the next line.

        Args:
            line: without what stands before it.
            stamp: the date that stood before it, ``""`` for none.
            is_partial: whether it goes on in the next line.

        Returns:
            Whether it belongs to something that has begun.
        """
        self._last = line.number
        if is_partial or self._partial:
            self._partial.append(line.text)
            self._partial_size += len(line.text)
            if is_partial and self._partial_size < self._found.tally.bounds.document_bytes:
                return True
            line = Line(line.number, "".join(self._partial))
            self._partial, self._partial_size = [], 0
        return self._feed(line, stamp)

    def _feed(self, line: Line, stamp: str, *, documents_too: bool = True) -> bool:
        section = self._section
        if section is not None:
            own = Line(line.number, shift(line.text, self._margin)) if self._margin else line
            if section.feed(own):
                self._foreign = 0
                self._look_at_document()
                return True
        if self._open(line, documents_too=documents_too):
            self._look_at_document()
            return True
        if self._section is not None:
            self._foreign += bool(line.text.strip())
            if self._foreign > _FOREIGN_LINES:
                self._close_section()
        if self._section is None and not self._in_fact and printed_stacks.FRAME.match(line.text):
            self._found.tally.note(_STRAY)
        self._feed_facts(line, stamp)
        self.recent.append(Line(line.number, line.text[:_LONGEST_RECENT]))
        return self._in_fact

    def _open(self, line: Line, *, documents_too: bool) -> bool:
        """Begin a section if the line is a first line of any."""
        text = line.text.lstrip(" \t")
        margin = len(line.text) - len(text)
        if not text or text[0] not in _FIRSTS or margin > _WIDEST_MARGIN:
            return False
        section = self._section_for(text, margin, documents_too=documents_too)
        if section is None:
            return False
        self._close_section()
        self._section, self._margin, self._foreign = section, margin, 0
        if not section.feed(Line(line.number, text)):
            self._section = None
            return False
        return True

    def _section_for(self, text: str, margin: int, *, documents_too: bool) -> Section | None:
        origin, tally = self._origin, self._found.tally
        if documents_too and documents.opens(text):
            return documents.DocumentSection(origin, tally)
        if len(text) > _LONGEST_LINE:
            return None
        if pyspy_text.opens(text):
            before = [Line(one.number, shift(one.text, margin)) for one in self.recent]
            return pyspy_text.PySpySection(origin, tally, before)
        if pystack.opens(text):
            return pystack.PystackSection(origin, tally)
        if faulthandler.opens(text):
            return faulthandler.FaulthandlerSection(origin, tally)
        if gdb.opens(text):
            return gdb.GdbSection(origin, tally)
        may_begin = self._section is None or isinstance(self._section, printed_stacks.PrintedSection)
        if may_begin and printed_stacks.opens(text):
            return printed_stacks.PrintedSection(origin, tally)
        if text[0] in _COMPLAINING and complaints.opens(text):
            return complaints.ComplaintSection(origin, tally)
        return None

    def _look_at_document(self) -> None:
        if isinstance(self._section, documents.DocumentSection) and self._section.is_over:
            self._close_section()

    def _close_section(self) -> None:
        while self._section is not None:  # lines that a document gave back may begin a dump
            section, self._section = self._section, None
            for dump in section.close():
                self._add_dump(dump)
            if isinstance(section, documents.DocumentSection):
                for record in section.records:
                    self._found.add_record(self._placed(record))
                for line in section.returned:
                    self._feed(line, "", documents_too=False)

    def _placed(self, record: FlightRecord) -> FlightRecord:
        if record.rank is not None or self._origin.rank is None:
            return record
        return msgspec.structs.replace(record, rank=self._origin.rank)

    def _add_dump(self, dump: StackDump) -> None:
        """Keep a dump. A complaint and the empty dump it explains are one."""
        dumps = self._found.dumps
        last = dumps[self._newest] if self._newest >= 0 else None
        self.recent.clear()
        if (
            last is not None
            and not (last.threads or dump.threads)
            and last.source == dump.source
            and dump.line - last.line <= _NEAR
            and (pyspy_text.NO_THREADS in {last.trouble, dump.trouble})
        ):
            header, complaint = (last, dump) if last.trouble == pyspy_text.NO_THREADS else (dump, last)
            dumps[self._newest] = replace(
                header, trouble=complaint.trouble, line=last.line, pid=header.pid or complaint.pid
            )
            return
        self._newest = len(dumps)
        dumps.append(dump)

    def _feed_facts(self, line: Line, stamp: str) -> None:
        text = line.text
        if not self._in_fact and _FACT_WORDS.search(text) is None:
            return
        if self._facts is None:
            self._facts = FactReader()
        if self._origin.channel:
            text = text.removeprefix(" ")  # of the prefix, where it ends in one
        dated = f"{stamp} {text}" if stamp else text
        self._in_fact = self._facts.feed(dated, number=line.number, rank=self._origin.rank)

    def remember(self, line: Line) -> None:
        """Take over an earlier line, from before it was known whose it is. A document may begin with it."""
        if self._section is not None or documents.opens(line.text.strip()):
            self.feed(line)
        else:
            self.recent.append(line)

    def tear(self) -> None:
        """Its last line was the last of the input, and has no end."""
        if isinstance(self._section, pystack.PystackSection):
            self._section.tear(behind=self._foreign > 0)

    def settle(self) -> None:
        """End what is open: no more lines, or none for long."""
        if self._partial:
            line = Line(self._last, "".join(self._partial))
            self._partial, self._partial_size = [], 0
            self._feed(line, "")
        self._close_section()
        self._in_fact = False
        if self._facts is not None:
            facts, self._facts = self._facts.close(), None
            channel = self._origin.channel
            self._found.add_facts(
                tuple(replace(fact, channel=channel) for fact in facts) if channel else facts
            )
