"""Reads what ended workers left behind.

Files may lie on a share that hangs: they are read in a thread of their own that is left behind when time is
up; what was not read by then is told from what the agent knows. Nothing is raised.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rankscope.agent.failures.error_file import read_error_file
from rankscope.agent.failures.exit_codes import signal_of
from rankscope.agent.failures.last_words import LogWords, last_words
from rankscope.agent.failures.model import EndWords, WorkerEnd
from rankscope.agent.failures.struck import is_by_stop_signal
from rankscope.agent.failures.tail import LONG_BYTES, SHORT_BYTES, read_tail
from rankscope.agent.failures.telling import tell
from rankscope.diag.classify.catalogue import Catalogue

logger = logging.getLogger(__name__)
READ_SECONDS: Final = 2.0
"""Seconds for all files together; eight ranks' logs take some 0.1 s on a local disk."""
LOG_LAG: Final = 0.3
"""Seconds after an end within which its last lines may still be on their way to the file (log capture)."""
_MOST_LOGS: Final = 4
"""Of one worker."""


def read_ends(
    ends: Sequence[WorkerEnd],
    *,
    keywords: Collection[str] = (),
    exit_codes: Collection[int] = (),
    catalogue: Catalogue | None = None,
    timeout: float = READ_SECONDS,
) -> tuple[EndWords, ...]:
    """What each worker left behind, in the order of ``ends``.

    For a job of several nodes: each node reads its own, and whoever decides gives all to ``choose_root``.

    Args:
        ends: the workers that have ended.
        keywords: texts that make an error retryable: of the settings, and of the job itself.
        exit_codes: exit codes that do.
        catalogue: the job's own, for what a closed connection looks like; the packaged one by default.
        timeout: seconds for reading error files and logs.
    """
    found: dict[int, EndWords] = {}
    # Who ended first is read first: it is most likely the root.
    order = sorted(range(len(ends)), key=lambda index: ends[index].at)

    def read_all(indices: Iterable[int]) -> None:
        for index in indices:
            try:
                found[index] = _read(ends[index], keywords, exit_codes, catalogue)
            except Exception:  # one that cannot be read must not lose the others
                logger.exception("rankscope could not read what rank %d left behind", ends[index].rank)

    def read() -> None:
        read_all(order)
        now = time.time()
        lags = {index: _lag(ends[index], found.get(index), now) for index in order}
        late = [index for index in order if lags[index] > 0]
        if late:
            time.sleep(max(lags[index] for index in late))
            read_all(late)

    thread = threading.Thread(target=read, name="rankscope-failures", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the host has no room for another thread
        logger.warning("error files and logs cannot be read: no thread can be started")
    else:
        thread.join(timeout)
    if thread.is_alive():
        logger.warning("error files and logs were not all read within %g s", timeout)
    known = dict(found)
    return tuple(
        known.get(index)
        or tell(end, None, None, keywords=keywords, exit_codes=exit_codes, catalogue=catalogue)
        for index, end in enumerate(ends)
    )


def _lag(end: WorkerEnd, words: EndWords | None, now: float) -> float:
    """Seconds until a log that says nothing yet has all that its writer said."""
    code = end.exit_code
    is_mute = code == 0 or is_by_stop_signal(code) or signal_of(code) is signal.SIGKILL
    if words is None or words.source != "exit code" or is_mute or not end.logs:
        return 0.0
    return min(LOG_LAG, max(0.0, end.at + LOG_LAG - now))


def _read(
    end: WorkerEnd,
    keywords: Collection[str],
    exit_codes: Collection[int],
    catalogue: Catalogue | None,
) -> EndWords:
    recorded = read_error_file(end.error_file)
    log = None if end.exit_code == 0 else read_log_words(end.logs)
    return tell(end, recorded, log, keywords=keywords, exit_codes=exit_codes, catalogue=catalogue)


def read_log_words(logs: Sequence[str]) -> LogWords:
    """What a worker's logs say of its end; the first that says something of an error counts.

    Args:
        logs: paths, in the order of trust.
    """
    best = LogWords()
    for path in logs[:_MOST_LOGS]:
        words = _words_of(path)
        if words.raised or words.native:
            return words
        if not best.end or (words.error_line and not best.error_line):
            best = words
    return best


def _words_of(path: str) -> LogWords:
    """The end of one file; further back where its last part says nothing, as after much noise."""
    began = time.monotonic()
    text = read_tail(path, size_bytes=SHORT_BYTES)
    words = last_words(text)
    is_all = len(text) < SHORT_BYTES // 4
    if words.raised or words.native or is_all or time.monotonic() - began > READ_SECONDS / 4:
        return words
    further = last_words(read_tail(path, size_bytes=LONG_BYTES))
    return further if further.raised or further.native else words
