"""Reads torchrun's summary of failed workers (``ChildFailedError``), and what launchers say of one worker.

The forms of torch 1.9 to 2.13. Each failure is a block of named lines under "Failures:" or "Root Cause". A
survivor that torchrun stopped is listed with exit code -15: a consequence, no cause. Times have seconds only
and no zone; they are read as UTC. Source: torch's ``elastic/multiprocessing/errors/__init__.py``.
"""

from __future__ import annotations

import re
import signal
from datetime import datetime, timezone
from typing import Final

from rankscope.diag.model import ExitFacts, Frame
from rankscope.diag.read import FactKind, LogFact
from rankscope.diag.read.log_tracebacks import HEADER, TracebackReader

SUMMARY_WORDS: Final = ("ChildFailedError", "Root Cause (first observed failure)", "Root Cause:")
_FIELD: Final = re.compile(r"\s{0,8}(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$")
_BLOCK: Final = re.compile(r"\s*\[\d{1,7}\]:\s*$")
_BORDER: Final = re.compile(r"\s*([=*-])\1{9,}\s*$")
_RANK: Final = re.compile(r"(\d{1,9})(?: \(local_rank: (\d{1,9})\))?")
_EXIT: Final = re.compile(r"(-?\d{1,9}) \(pid: (\d{1,9})\)\s*(?:\((\w+)\))?")
_AGENT: Final = re.compile(r"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9}) \(pid: (\d{1,9})\)")
_SIGNALLED: Final = re.compile(r"Sending process (\d{1,9}) closing signal (SIG\w{1,12})")
_SPAWNED: Final = re.compile(
    r"ProcessExitedException: process \d{1,9} terminated with (?:signal (SIG[A-Z]{1,10})|exit code (\d{1,9}))"
)
CRASH: Final = "Fatal Python error: "
_CRASHED: Final = re.compile(r"Fatal Python error: (.{1,300})$")
# As CPython's faulthandler names them, before 3.13 and since; any other fatal error aborts.
_CRASHES: Final = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,
}
RESTART_WORDS: Final = ("will restart worker group", "Starting worker group", "restart_count=")
"""Of torch 1.9 to 2.13; the second stands before the first attempt as well."""
_RESTARTED: Final = re.compile(
    r"will restart worker group|\] Starting worker group|(?<![\w.])restart_count=[1-9]\d{0,6}\s*$"
)
_NO_TRACEBACK: Final = re.compile(r"To enable traceback see|<N/?A>|<NONE>$")
_LONGEST: Final = 500
_FOREIGN: Final = 40  # lines that are none of it before it counts as over


def spawned_fact(text: str, *, number: int, time: float | None) -> LogFact | None:
    """What ``mp.spawn`` raises when a process of its ended without raising; its index is no rank."""
    ended = _SPAWNED.search(text)
    if ended is None:
        return None
    code = int(ended[2]) if ended[2] else -getattr(signal, ended[1], 0) or None
    return LogFact("failure", text[:_LONGEST], number, None, 0, time, ExitFacts(code))


def crash_fact(text: str, *, number: int, rank: int | None, time: float | None) -> LogFact | None:
    """What Python writes before its process is ended by a signal, or ends itself."""
    found = _CRASHED.search(text)
    if found is None:
        return None
    code = -_CRASHES.get(found[1].strip(), signal.SIGABRT)
    message = found[0][:_LONGEST]
    return LogFact("crashed", message, number, rank, 0, time, ExitFacts(code, message))


def restart_fact(text: str, *, number: int, time: float | None) -> LogFact | None:
    """What torch's agent logs when it starts its workers, again or for the first time."""
    return (
        LogFact("restarted", text.strip()[:_LONGEST], number, time=time) if _RESTARTED.search(text) else None
    )


def agent_fact(text: str, *, number: int, time: float | None) -> LogFact | None:
    """What the agent logs of one worker: how it ended, or that it was sent a signal."""
    ended = _AGENT.search(text)
    if ended:
        return LogFact(
            "failure",
            text[ended.start() :][:_LONGEST],
            number,
            None,
            int(ended[3]),
            time,
            ExitFacts(int(ended[1])),
            local_rank=int(ended[2]),
        )
    sent = _SIGNALLED.search(text)
    if sent:
        code = -getattr(signal, sent[2], signal.SIGTERM)
        return LogFact("signalled", sent[0], number, None, int(sent[1]), time, ExitFacts(code))
    return None


class SummaryReader:
    """One summary.

    Attributes:
        is_open: whether the next line may still belong to it.
        took: whether the last line was its own; what is not may be a fact of another kind.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.took = True
        self._kind: FactKind = "failure"
        self._seen: set[FactKind] = set()
        self._fields: dict[str, str] = {}
        self._line = 0
        self._in_traceback = False
        self._traceback = TracebackReader()
        self._raised: tuple[str, Frame | None] | None = None
        self._foreign = 0

    def feed(self, text: str, *, number: int) -> LogFact | None:
        """Take a line; returns a failure when the line ends its block."""
        self.took = True
        stripped = text.strip()
        if stripped.startswith("Root Cause"):
            return self._section("root_failure")
        if stripped in {"Failures:", "Other Failures:"}:
            return self._section("failure")
        if _BLOCK.match(text):
            fact = self.close_block()
            self._line = number
            return fact
        border = _BORDER.match(text)
        if border:
            fact = self.close_block()
            # Today's form ends with "=" below the root; torch 1.9 has the root first, and "*" at the end.
            both = self._seen == {"failure", "root_failure"}
            self.is_open = not (self._seen and border[1] == "*") and not (both and border[1] == "=")
            return fact
        self._field(text, stripped, number)
        return None

    def close_block(self) -> LogFact | None:
        """The failure that is being read, if there is one."""
        fields, self._fields = self._fields, {}
        line, self._line = self._line, 0
        raised, self._raised = self._raised, None
        self._in_traceback = False
        self._traceback = TracebackReader()
        code, rank = _EXIT.match(fields.get("exitcode", "")), _RANK.match(fields.get("rank", ""))
        if code is None:
            return None
        message = raised[0] if raised else fields.get("traceback", fields.get("msg", "")).strip('"')
        if _NO_TRACEBACK.match(message) or HEADER in message:
            message = ""
        text = ", ".join(f"{name}: {' '.join(value.split())}" for name, value in fields.items() if value)
        return LogFact(
            kind=self._kind,
            text=(f"{text}, {raised[0]}" if raised else text)[:_LONGEST],
            line=line,
            rank=int(rank[1]) if rank else None,
            pid=int(code[2]),
            time=_time(fields.get("time", "")),
            exit=ExitFacts(int(code[1]), message[:_LONGEST], frame=raised[1] if raised else None),
        )

    def _section(self, kind: FactKind) -> LogFact | None:
        fact = self.close_block()
        self._kind = kind
        self._seen.add(kind)
        return fact

    def _field(self, text: str, stripped: str, number: int) -> None:
        if self._in_traceback:
            raised = self._traceback.feed(text, number=number)
            if raised is not None:
                self._raised = raised.text, raised.frame
        found = _FIELD.match(text)
        if found and self._line and found[1] not in self._fields:
            self._foreign = 0
            self._fields[found[1]] = found[2]
            if found[1] == "traceback":
                self._in_traceback = True
                self._traceback.feed(text, number=number)
        elif stripped and not self._in_traceback:
            self.took = False
            self._foreign += 1
            self.is_open = self._foreign <= _FOREIGN


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.strip().replace("_", "T")).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None
