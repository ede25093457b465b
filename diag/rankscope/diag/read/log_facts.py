"""Reads the lines of a log that say something of a job's end: see ``FactKind``.

One reader is for one writer (one channel): what several lines tell together is put together here. Most
lines of a log tell nothing; a line that begins or holds a fact has one of ``ANCHORS`` in it, and when
``feed`` answers True the line after it belongs here too, whatever it holds. It must not know where the
lines come from.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import Final

from rankscope.diag.model import ExitFacts
from rankscope.diag.read import LogFact
from rankscope.diag.read.log_call_stacks import HEADER as CALL_STACK
from rankscope.diag.read.log_call_stacks import CallStackReader
from rankscope.diag.read.log_collectives import CollectiveReader
from rankscope.diag.read.log_ended import AGENTS_SIGNAL, ENDED_WORDS, ended_facts
from rankscope.diag.read.log_failures import (
    CRASH,
    RESTART_WORDS,
    SUMMARY_WORDS,
    SummaryReader,
    agent_fact,
    crash_fact,
    restart_fact,
    spawned_fact,
)
from rankscope.diag.read.log_stalls import HEADER as STALL
from rankscope.diag.read.log_stalls import StallReader
from rankscope.diag.read.log_steps import StepsBehind
from rankscope.diag.read.log_tracebacks import HEADER, Raised, TracebackReader, is_interruption
from rankscope.diag.read.log_waits import wait_fact

_COLLECTIVE_WORDS: Final = (
    "Watchdog caught collective",
    "detected by watchdog at work",
    "at NCCL work: ",
    " timeout from ",
    "watchdog got stuck for",
    "CollectiveFingerPrint",
    "monitoredBarrier",
    "Culprit rank ",
    "missing ranks: {",
    "the lagging",
)
_WAIT_WORDS: Final = (
    "gloo/transport/",
    "NCCL WARN",
    "torch.distributed.Dist",
    "Socket Timeout",
    "client socket has timed out",
    "Timed out initializing process group",
    "waiting for clients. ",
    "recvValue",
    "flag on TCPStore",
    "successfully reached monitoredBarrier",
    "is setting up NCCL communicator",
)
_AGENT_WORDS: Final = ("failed (exitcode: ", "closing signal SIG")
_LEFT_WORDS: Final = (
    "process group has NOT been destroyed before",  # torch 2.4 and 2.5
    "destroy_process_group() was not called before program exit",
)
_RENDEZVOUS: Final = "Rendezvous complete for workers"
_REPORT: Final = ("joined but didn't finish collective", ", but didn't join collective")
# Each costs a pass over every log. Where a fact has no word of its own here, it stands in a traceback, in
# a line of torch's own loggers, or right behind a line of the watchdog.
ANCHORS: Final[tuple[bytes, ...]] = (
    HEADER.encode(),
    b"distributed",
    b"Root Cause (first",
    b"atchdog",
    b", last completed ",
    b"CollectiveFingerPrint",
    b"monitoredBarrier",
    b"gloo/transport/",
    b"NCCL WARN",
    b"TCPStore",
    b"in store based barrier",
    b"destroy_process_group",
    CRASH.encode(),
    b"srun: error: ",
    b"slurmstepd",
    b"Culprit rank ",
    b"missing ranks: {",
    STALL.encode(),
)
"""Literals: a line without any of them, after one for which ``feed`` answered False, tells nothing."""

_STAMP: Final = re.compile(
    r"\[?(?:(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
    r"|(\d{9,10}\.\d{1,9})|\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\]?"
    r"(?: (?:stdout|stderr) [FP])?(?: |$)"
)
# Raised by who started the workers: what became of these follows, or stands in the same line.
_LAUNCHERS: Final = "torch.multiprocessing.spawn.Process"
_EVERY_ONE: Final = frozenset({"failure", "root_failure", "restarted", "task_ended"})
_LONGEST: Final = 500
_LONGEST_LINE: Final = 20_000
_MOST_FACTS: Final = 100_001  # of one writer; one more than an input may give, so that a loss is told
_AFTER_WATCHDOG: Final = 6  # lines behind one of the watchdog, which may be its status, or a desync report


class FactReader:
    """Reads the lines of one writer, in their order."""

    def __init__(self) -> None:
        self._facts: list[LogFact] = []
        self._known: set[tuple[str, int | None, str]] = set()
        self._collectives = CollectiveReader()
        self._traceback = TracebackReader()
        self._stalls = StallReader()
        self._call = CallStackReader()
        self._called: tuple[int, int | None, float | None] = 0, None, None  # the line that announced a stack
        self._summary: SummaryReader | None = None
        self._raised_at: int | None = None  # where the traceback that may be chained stands in the facts
        self._after = 0
        self._behind: StepsBehind | None = None
        self._is_interrupted = False
        self._survived = 0  # facts before this one are not looked at any more

    def feed(self, line: str, *, number: int, rank: int | None) -> bool:
        """Take a line.

        Args:
            line: its text, without what the writer's name put before it; a date may stand there.
            number: its number in the input, from 1.
            rank: global rank of the writer, ``None`` when what stood before it does not tell.

        Returns:
            Whether the next line is wanted too, whatever it holds.
        """
        line = line[:_LONGEST_LINE]
        time, text = _taken_apart(line)
        if self._in_call_stack(text, number, rank, time) or self._in_summary(text, number):
            return True
        if any(word in text for word in SUMMARY_WORDS):
            self._begin_summary(text, number)
            return True
        raised = self._traceback.feed(text, number=number)
        if raised is not None:
            self._add_raised(raised, rank=rank, time=time)
            self._behind = StepsBehind()
        elif not self._traceback.is_inside:
            self._look_behind(text)
        self._single(text, number=number, rank=rank, time=time)
        if STALL in text or self._stalls.is_open:
            self._stalls.feed(text, number=number, time=time)
        return (
            self._summary is not None
            or self._traceback.is_open
            or self._stalls.is_open
            or self._after > 0
            or (self._behind is not None and self._behind.is_open)
        )

    @property
    def awaits_stack(self) -> bool:
        """Whether the next lines may be a stack, without what stands before the writer's other lines."""
        return self._call.is_open

    def _in_call_stack(self, text: str, number: int, rank: int | None, time: float | None) -> bool:
        if self._call.is_open:
            if self._call.feed(text):
                return True
            self._end_call_stack()
        if CALL_STACK.search(text) is None:
            return False
        self._call.begin()
        self._called = number, rank, time
        return True

    def _end_call_stack(self) -> None:
        number, rank, time = self._called
        self._add(self._collectives.called_from(self._call.take(), number=number, rank=rank, time=time))

    @property
    def lists_ranks(self) -> bool:
        """Whether the next lines may begin with a rank's number, which looks like a task's (``3: [...]``)."""
        return self._stalls.is_open

    def close(self) -> tuple[LogFact, ...]:
        """The facts, in the order of their lines; a reader is not used afterwards."""
        if self._summary is not None:
            self._add(self._summary.close_block())
            self._summary = None
        self._end_call_stack()
        for fact in self._stalls.close():
            self._add(fact)
        facts, self._facts = self._facts, []
        return tuple(sorted(facts, key=lambda fact: fact.line))

    def _begin_summary(self, text: str, number: int) -> None:
        self._traceback = TracebackReader()  # the launcher's own, which only says that workers failed
        self._summary = SummaryReader()
        self._summary.feed(text, number=number)

    def _in_summary(self, text: str, number: int) -> bool:
        if self._summary is None:
            return False
        summary = self._summary
        self._add(summary.feed(text, number=number))
        if not summary.is_open:
            self._add(summary.close_block())
            self._summary = None
        return summary.took

    def _look_behind(self, text: str) -> None:
        """Whoever goes on with its steps has survived what it logged before."""
        if self._behind is None or not self._behind.is_open or not self._behind.feed(text):
            return
        for at in range(self._survived, len(self._facts)):
            fact = self._facts[at]
            if fact.kind in {"raised", "interrupted"}:
                self._facts[at] = replace(fact, kind="handled", exit=None, frames=())
        self._survived = len(self._facts)
        self._raised_at = None
        self._is_interrupted = False

    def _single(self, text: str, *, number: int, rank: int | None, time: float | None) -> None:
        if any(word in text for word in _AGENT_WORDS):
            self._add(agent_fact(text, number=number, time=time))
            return
        self._of_ends(text, number=number, rank=rank, time=time)
        in_report = self._after > 0 and any(word in text for word in _REPORT)
        self._after = max(self._after - 1, 0)
        if in_report or any(word in text for word in _COLLECTIVE_WORDS):
            self._after = _AFTER_WATCHDOG
            for fact in self._collectives.feed(text, number=number, rank=rank, time=time):
                self._add(fact)
        if any(word in text for word in _WAIT_WORDS):
            self._add(wait_fact(text, number=number, rank=rank, time=time))

    def _of_ends(self, text: str, *, number: int, rank: int | None, time: float | None) -> None:
        """What tells of ends, and of new beginnings, on a line of its own."""
        if any(word in text for word in ENDED_WORDS):
            for fact in ended_facts(text, number=number, time=time):
                self._add(fact)
        if CRASH in text:
            self._add(crash_fact(text, number=number, rank=rank, time=time))
        if any(word in text for word in _LEFT_WORDS):
            self._add(LogFact("left", text[:_LONGEST], number, rank, 0, time, ExitFacts(None)))
        if _RENDEZVOUS in text:
            self._after = _AFTER_WATCHDOG  # its result says how often the workers were started again
        if any(word in text for word in RESTART_WORDS):
            self._add(restart_fact(text, number=number, time=time))

    def _add_raised(self, raised: Raised, *, rank: int | None, time: float | None) -> None:
        text = raised.text[:_LONGEST]
        if text.startswith(_LAUNCHERS):
            self._add(spawned_fact(text, number=raised.line, time=time))
            return
        if AGENTS_SIGNAL in text:
            return  # the launcher was stopped: the line says so by itself
        if is_interruption(text):
            self._add_interruption(raised, rank=rank, time=time)
            return
        if self._is_interrupted:
            return  # what breaks while an interrupted process ends
        fact = LogFact(
            "raised", text, raised.line, rank, 0, time, ExitFacts(None, message=text, frame=raised.frame)
        )
        self._add_in_chain(fact, is_chained=raised.is_chained)

    def _add_interruption(self, raised: Raised, *, rank: int | None, time: float | None) -> None:
        """Where an interrupted process stood is told by the first exception of a chain."""
        if not (raised.is_chained and self._is_interrupted):
            text = raised.text[:_LONGEST]
            fact = LogFact("interrupted", text, raised.line, rank, 0, time, frames=raised.frames)
            self._add_in_chain(fact, is_chained=raised.is_chained)
        self._is_interrupted = True

    def _add_in_chain(self, fact: LogFact, *, is_chained: bool) -> None:
        if is_chained and self._raised_at is not None:
            self._facts[self._raised_at] = fact
        elif len(self._facts) < _MOST_FACTS:
            self._raised_at = len(self._facts)
            self._facts.append(fact)

    def _add(self, fact: LogFact | None) -> None:
        """Keep a fact once: torch prints the same sentence as a log line and as an exception's text."""
        if fact is None or len(self._facts) >= _MOST_FACTS:
            return
        key = (fact.kind, fact.rank, fact.text)
        if fact.kind in _EVERY_ONE or key not in self._known:
            self._known.add(key)
            self._facts.append(fact)


def _taken_apart(line: str) -> tuple[float | None, str]:
    """The date before a line, in unix seconds (UTC where it names no zone), and the rest."""
    found = _STAMP.match(line) if line[:1].isdigit() or line[:2] in {"[1", "[2"} else None
    if found is None:
        return None, line
    rest = line[found.end() :]
    if found[9]:
        return float(found[9]), rest
    if not found[1]:
        return None, rest
    zone = (found[8] or "Z").replace("Z", "+00:00")
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    micro = (found[7] or "0")[:6].ljust(6, "0")
    text = f"{found[1]}-{found[2]}-{found[3]}T{found[4]}:{found[5]}:{found[6]}.{micro}{zone}"
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc).timestamp(), rest
    except (ValueError, OverflowError):
        return None, rest
