"""What the end of a worker's log says of its end: the uncaught exception, or what a library said before.

Pure: gets a text, knows no file. Tracebacks that end nobody are told apart: ``Exception ignored in``, errors
of logging and of exit handlers never count, those of other threads and processes only when there is nothing
else.
Whether somebody caught an exception does not stand in a log, so the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rankscope.agent.failures.log_text import LogText, TextLine
from rankscope.diag.model import Frame
from rankscope.diag.read.log_tracebacks import HEADER, TracebackReader

END_LINES: Final = 100
"""Lines that count as the end of a log."""
_LONGEST: Final = 1_000
"""Characters of a message."""
_MOST_DETAIL: Final = 24
"""Lines of an exception's text behind its first."""
_AT_THE_END: Final = 40
"""Lines in which one that speaks of an error is taken for the reason of an end."""
_NATIVE_LINES: Final = 300
"""Lines at the end in which a library's word counts: its stacks stand behind it."""
_MOST_TRACEBACKS: Final = 8
_CHAINED: Final = frozenset(
    {
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    }
)
_NEVER: Final = re.compile(
    r"Exception ignored (?:in|on|while)|--- Logging error ---|Error in atexit|Error in sys\.excepthook"
)
_ELSEWHERE: Final = re.compile(
    r"^Process [\w-]+-[\d:]+:$|Exception in (?:thread|tkinter|callback)"
    r"|(?:Task|Future) exception was never retrieved"
)
"""What stands before the traceback of an exception that ended another thread or process."""
_LAUNCHERS: Final = re.compile(
    r"(?:[\w.]+\.)?(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b"
)
"""Raised by who started the process that failed: what that one raised says more."""
_WHAT: Final = re.compile(r"what\(\): +(\S.*)")
# fmt: off
_NATIVE_WORDS: Final = (
    "what(): ", "Watchdog caught collective", "terminated with exception: ", "atchdog got stuck for",
    "terminate called ", "Fatal Python error: ", "NCCL WARN ", "CUDA error: ", "Xid (", "alloc(): ",
    "free(): ", "munmap_chunk(): ", "double free or corruption", "corrupted size", "corrupted double-linked",
    "stack smashing detected", "Assertion `", "Assertion '", "Check failed: ",
)
# fmt: on
"""Literals: a line that ``_NATIVE`` or ``_WHAT`` finds has one of them."""
_NATIVE: Final = re.compile(
    r"Watchdog caught collective operation timeout|watchdog thread terminated with exception: "
    r"|[Ww]atchdog got stuck for|terminate called (?:after|without)|NCCL WARN |CUDA error: |Xid \("
    r"|Fatal Python error: (?!Aborted|Segmentation fault|Bus error|Illegal instruction|Floating)"
    r"|double free or corruption|(?:malloc|free|realloc|munmap_chunk)\(\): |corrupted (?:size|double-linked)"
    r"|stack smashing detected|Assertion [`'].{1,300}' failed|Check failed: "
)
"""What C and C++ say before they end a process."""
_OUT_OF_MEMORY: Final = re.compile(
    r"(?i)\boom[-_ ]?kill|out of memory: kill|memory cgroup out of memory|exceeded (?:step|job) memory limit"
)
_ERROR_LINE: Final = re.compile(
    r"^(?:Syntax|Indentation|Tab)Error: "
    r"|(?i:\b(?:error|fatal|panic(?:ked)?|critical)\b[^\w]|: command not found|No module named"
    r"|No such file or directory|Permission denied|cannot execute|cannot open shared object|can't open file)"
)


@dataclass(frozen=True, slots=True)
class LogWords:
    """What a log says of its writer's end.

    Attributes:
        raised: last line of the uncaught exception, ``""`` for none.
        frame: the user's innermost frame that it came through.
        detail: further lines of its text.
        lines_after: lines that the log has behind it.
        native: what a library said before it ended the process, ``""`` for nothing.
        native_first: whether that stands before the exception.
        out_of_memory: a line that speaks of the kernel's OOM killer, ``""`` for none.
        error_line: the last line of the end that speaks of an error, ``""`` for none.
        end: the last lines, cleaned; where retryable messages are looked for.
    """

    raised: str = ""
    frame: Frame | None = None
    detail: tuple[str, ...] = ()
    lines_after: int = 0
    native: str = ""
    native_first: bool = False
    out_of_memory: str = ""
    error_line: str = ""
    end: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Raised:
    text: str
    at: int
    frame: Frame | None
    counts: bool
    is_elsewhere: bool


def last_words(text: str) -> LogWords:
    """Read the end of a log.

    Args:
        text: of one worker; its beginning may be cut off.
    """
    log = LogText(text)
    found = _raised(log)
    native = _native(log)
    end = log.last(END_LINES)
    last = end[-_AT_THE_END:]
    at = found.at if found is not None else len(text)
    return LogWords(
        raised=found.text[:_LONGEST] if found is not None else "",
        frame=found.frame if found is not None else None,
        detail=_detail(log, at) if found is not None else (),
        lines_after=log.lines_after(at),
        native=native.text.strip()[:_LONGEST] if native is not None else "",
        native_first=native is not None and native.at < at,
        out_of_memory=next((line.strip() for line in reversed(last) if _OUT_OF_MEMORY.search(line)), ""),
        error_line=next((line.strip() for line in reversed(last) if _speaks_of_error(line)), "")[:_LONGEST],
        end=end,
    )


def _raised(log: LogText) -> _Raised | None:
    """The exception that ended the process, as far as that can be told."""
    found = list(_all_raised(log))
    own = [one for one in found if not one.is_elsewhere] or found
    said = [one for one in own if not _LAUNCHERS.match(one.text)] or own
    return said[-1] if said else None


def _all_raised(log: LogText) -> Iterator[_Raised]:
    read_to = 0
    for place in log.last_places(HEADER, _MOST_TRACEBACKS):
        if place >= read_to:
            for raised in _tracebacks_at(log, place):
                read_to = raised.at + 1
                if raised.counts:
                    yield raised


def _tracebacks_at(log: LogText, place: int) -> Iterator[_Raised]:
    """What the traceback there, and those that follow it at once, end with."""
    reader = TracebackReader()
    before = _line_before(log, log.line_at(place).at)
    counts, is_elsewhere = not _NEVER.search(before), bool(_ELSEWHERE.search(before))
    for line in log.forward(log.line_at(place).at):
        if HEADER in line.text and line.at > place and before not in _CHAINED:
            counts, is_elsewhere = not _NEVER.search(before), bool(_ELSEWHERE.search(before))
        raised = reader.feed(line.text, number=line.at)
        if raised is not None:
            yield _Raised(raised.text, line.at, raised.frame, counts, is_elsewhere)
        if not reader.is_open:
            return
        before = line.text.strip() or before


def _line_before(log: LogText, at: int) -> str:
    nearest = (line.text.strip() for _, line in zip(range(3), log.backward(at), strict=False))
    return next((text for text in nearest if text), "")


def _detail(log: LogText, at: int) -> tuple[str, ...]:
    """What belongs to an exception's text behind its first line."""
    found: list[str] = []
    for number, line in enumerate(log.forward(at)):
        if number > _MOST_DETAIL or HEADER in line.text or _NEVER.search(line.text):
            break
        if number and line.text.strip():
            found.append(line.text.strip())
    return tuple(found)


def _native(log: LogText) -> TextLine | None:
    """What a library said: the text of a C++ exception, else the first of the last group of such lines."""
    for place in reversed(log.last_places(_NATIVE_WORDS[0], 1)):
        line = log.line_at(place)
        said = _WHAT.search(line.text)
        if said is not None and log.lines_after(place) <= _NATIVE_LINES:
            return TextLine(line.at, said[1])
    places = [place for word in _NATIVE_WORDS[1:] for place in log.last_places(word, 2)]
    for place in sorted(places, reverse=True):
        line = log.line_at(place)
        if log.lines_after(place) > _NATIVE_LINES:
            return None
        if _NATIVE.search(line.text):
            return _first_of_group(line, log.backward(line.at))
    return None


def _first_of_group(last: TextLine, before: Iterable[TextLine]) -> TextLine:
    near = [line for _, line in zip(range(_AT_THE_END), before, strict=False) if _NATIVE.search(line.text)]
    group = [last, *near]
    return next((line for line in group if "terminated with exception" in line.text), group[-1])


def _speaks_of_error(line: str) -> bool:
    return (
        bool(_ERROR_LINE.search(line))
        and HEADER not in line
        and not (_NEVER.search(line) or _ELSEWHERE.search(line))
        and line.strip() not in _CHAINED
    )
