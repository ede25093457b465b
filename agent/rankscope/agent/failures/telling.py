"""Puts together what is known of one worker's end: the line to read, where it was read, when it failed.

Pure: error file and log have been read. The order: torch's error file, the probe, the log, the exit code;
of a signal that nobody can answer the exit code says it all, whatever an old traceback in the log says.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection
from typing import Final, NamedTuple

from rankscope.agent.failures.aftermath import is_aftermath
from rankscope.agent.failures.error_file import Recorded
from rankscope.agent.failures.exit_codes import exit_phrase, signal_of
from rankscope.agent.failures.identity import bare_line
from rankscope.agent.failures.last_words import LogWords, last_words
from rankscope.agent.failures.model import EndWords, Source, WorkerEnd
from rankscope.agent.failures.retryable import judge
from rankscope.agent.failures.struck import is_by_stop_signal
from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.model import Frame
from rankscope.diag.read.log_tracebacks import HEADER

_LONGEST: Final = 500
_NEAR_LINES: Final = 40
_HINTS: Final = re.compile(r"Last error:")
_IN_LOADER: Final = re.compile(r"Caught \S{1,200} in (?:DataLoader worker process|replica|pin memory thread)")
"""Raised again in the main process: what was caught follows, as a traceback of its own."""


class _Said(NamedTuple):
    """A message and all lines of it."""

    message: str
    source: Source
    lines: tuple[str, ...]
    frame: Frame | None = None


def tell(
    end: WorkerEnd,
    recorded: Recorded | None,
    log: LogWords | None,
    *,
    keywords: Collection[str] = (),
    exit_codes: Collection[int] = (),
    catalogue: Catalogue | None = None,
) -> EndWords:
    """What is known of a worker's end.

    Args:
        end: as its agent knows it.
        recorded: torch's error file, ``None`` when there is none.
        log: what its log says, ``None`` when there is none.
        keywords: texts that make an error retryable.
        exit_codes: exit codes that do.
        catalogue: the job's, for closed connections.
    """
    words = log or LogWords()
    said = _said(end, recorded, words)
    failed_at, uncertainty, raised = _when(end, recorded, said)
    verdict = judge(end.exit_code, said.lines, end=words.end, keywords=keywords, exit_codes=exit_codes)
    return EndWords(
        rank=end.rank,
        local_rank=end.local_rank,
        node=end.node,
        role=end.role,
        exit_code=end.exit_code,
        stopped_at=end.stopped_at,
        failed_at=failed_at,
        uncertainty=uncertainty,
        raised=raised,
        message=said.message,
        source=said.source,
        frame=said.frame,
        is_aftermath=bool(said.lines) and is_aftermath(said.message, catalogue=catalogue),
        retryable=verdict.retryable,
        because=verdict.because,
    )


def _said(end: WorkerEnd, recorded: Recorded | None, log: LogWords) -> _Said:
    sent = signal_of(end.exit_code)
    if sent is signal.SIGKILL or (is_by_stop_signal(end.exit_code) and recorded is None and not end.said):
        phrase = exit_phrase(end.exit_code)
        why = f"{phrase}: {log.out_of_memory}" if sent is signal.SIGKILL and log.out_of_memory else phrase
        return _Said(_one_line(why), "exit code", ())
    found = _from_error_file(end, recorded) or _from_probe(end)
    if found is not None and not _IN_LOADER.search(found.message):
        # The log has further lines of the same exception, and the frame.
        same = bool(log.raised) and _same_type(log.raised, found.message)
        return found._replace(
            message=_with_reason(found.message, log.detail) if same else found.message,
            lines=(*found.lines, *(log.detail if same else ())),
            frame=found.frame or (log.frame if same else None),
        )
    return _from_log(end, log) or found or _Said(exit_phrase(end.exit_code), "exit code", ())


def _from_error_file(end: WorkerEnd, recorded: Recorded | None) -> _Said | None:
    if recorded is None:
        return None
    text = recorded.message
    if HEADER in text:  # what a process of its own raised, and its spawner put into words
        inner = last_words(text)
        if inner.raised:
            return _Said(_one_line(inner.raised), "error file", (inner.raised, *inner.detail), inner.frame)
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    stack = last_words(recorded.stack)
    message = _with_reason(lines[0], lines[1:])
    return _Said(message, "error file", lines, stack.frame or end.frame)


def _from_probe(end: WorkerEnd) -> _Said | None:
    if not end.said.strip():
        return None
    return _Said(_one_line(end.said), "probe", (end.said,), end.frame)


def _from_log(end: WorkerEnd, log: LogWords) -> _Said | None:
    raised = _Said(_with_reason(log.raised, log.detail), "log", (log.raised, *log.detail), log.frame)
    native = _Said(_one_line(log.native), "log", (log.native,))
    if signal_of(end.exit_code) is not None:
        if log.native and (log.native_first or not log.raised):
            return native
        # Python's exception, and then a library that could not bear its end.
        aborted = signal_of(end.exit_code) is signal.SIGABRT
        return raised if log.raised and aborted else native if log.native else None
    # Python's own exit code after an uncaught exception is 1; with another the program went on for a while.
    if log.raised and (end.exit_code in {1, None} or log.lines_after <= _NEAR_LINES):
        return raised
    if log.native:
        return native
    return _Said(_one_line(log.error_line), "log", (log.error_line,)) if log.error_line else None


def _when(end: WorkerEnd, recorded: Recorded | None, said: _Said) -> tuple[float, float, bool]:
    """When it failed, by how much later that may have been, and whether that is when it raised."""
    if recorded is not None and recorded.at is not None and said.source == "error file":
        at = min(recorded.at, end.at)
        return at, max(0.0, min(recorded.uncertainty, end.at + end.uncertainty - at)), True
    if end.said_at is not None and said.source != "exit code":
        return min(end.said_at, end.at), 0.0, True
    return end.at, end.uncertainty, False


def _with_reason(first: str, further: tuple[str, ...]) -> str:
    """An exception's first line, and what NCCL says under it: there the cause stands."""
    at = next((at for at, line in enumerate(further[:-1]) if _HINTS.search(line)), None)
    return _one_line(first if at is None else f"{first}; {further[at + 1]}")


def _one_line(text: str) -> str:
    shown = " ".join(bare_line(text).split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 4] + " ..."


def _same_type(one: str, other: str) -> bool:
    return _bare_type(one) == _bare_type(other)


def _bare_type(message: str) -> str:
    return message.partition(":")[0].rpartition(".")[2].strip()
