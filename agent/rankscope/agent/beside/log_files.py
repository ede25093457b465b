"""Looks at a job's log files once a second, in a thread of its own: a lost share holds nobody but it.

It turns glob patterns into sizes and gives them to ``log_growth``; it knows nothing of what is in a file.
"""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from rankscope.agent.beside.log_growth import LogFile, LogGrowth

PERIOD: Final = 1.0
"""Seconds between two looks at the files."""
PATTERN_PERIOD: Final = 5.0
"""Seconds between two searches for files that are new."""
MOST_FILES: Final = 4096


class LogFiles:
    """Owner of the thread ``rankscope-log-files``. Without patterns there is no thread, and nothing grows.

    Args:
        patterns: globs, ``**`` for any number of folders.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._growth = LogGrowth()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-log-files", daemon=True)

    def start(self) -> None:
        """Look once, then start the thread."""
        if self._patterns:
            self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread; one that hangs in a lost share is left behind after ``timeout`` seconds."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    @property
    def bytes_by_rank(self) -> Mapping[int, int]:
        """Bytes written since the first look, by the rank that a file's name gives (``NO_RANK`` for none)."""
        return self._growth.bytes_by_rank

    @property
    def files(self) -> int:
        """How many files there are."""
        return self._growth.files

    def _run(self) -> None:
        paths: list[str] = []
        searched = float("-inf")
        while True:
            now = time.monotonic()
            if now - searched >= PATTERN_PERIOD:
                paths, searched = self._search(), now
            self._growth.update([file for path in paths if (file := _file(path)) is not None])
            if self._stop.wait(PERIOD):
                return

    def _search(self) -> list[str]:
        found = (path for pattern in self._patterns for path in glob.iglob(pattern, recursive=True))  # noqa: PTH207
        return list(dict.fromkeys(path for _number, path in zip(range(MOST_FILES), found, strict=False)))


def _file(path: str) -> LogFile | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a second and file
    except OSError:
        return None
    return LogFile(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
