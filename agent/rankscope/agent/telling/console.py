"""What the agent itself says to the person at the terminal: few lines, on stderr, never blocking.

A blocked terminal must not hold the thread that watches the job, so lines go through a bounded queue to a
thread of their own; past its bound they are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from typing import Final

from rankscope.diag.report.text import inert

PREFIX: Final = "rankscope: "
_CAPACITY: Final = 1000
STDERR: Final = 2


class LogLines(logging.Handler):
    """Shows what our own modules log as lines of the console, for as long as it is attached."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._logger = logging.getLogger("rankscope")
        self._propagated = True

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        try:
            self._console.say(self.format(record))
        except Exception:  # noqa: BLE001 - logging's own way to tell of a record that cannot be formatted
            self.handleError(record)

    def attach(self) -> None:
        """Take the lines of the ``rankscope`` loggers instead of logging's last resort."""
        self._propagated = self._logger.propagate
        self._logger.addHandler(self)
        self._logger.propagate = False

    def detach(self) -> None:
        """Give them back."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated


class Console:
    """Writes lines to a file descriptor from a thread of its own."""

    def __init__(self, fd: int = STDERR) -> None:
        self._fd = fd
        self._lines: queue.Queue[str | None] = queue.Queue(_CAPACITY)
        self._said: set[str] = set()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="rankscope-console", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print ``text``, each line with the prefix; never blocks, never raises.

        Only a line feed ends a line. What else is no plain character is spelled out: a worker's words must
        not clear a terminal, nor look like a line of ours.
        """
        lines = "".join(
            f"{PREFIX}{inert(line.expandtabs())}".rstrip() + "\n" for line in text.rstrip("\n").split("\n")
        )
        try:
            self._lines.put_nowait(lines)
        except queue.Full:
            self._dropped += 1

    def once(self, text: str) -> None:
        """Print ``text`` unless it has been said before."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def close(self, timeout: float = 1.0) -> None:
        """Write what is queued and end the thread; gives up after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        try:
            self._lines.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _write_all(self) -> None:
        while (lines := self._lines.get()) is not None:
            data = lines.encode("utf-8", "backslashreplace")
            if self._dropped:
                data += f"{PREFIX}{self._dropped} lines could not be shown\n".encode()
                self._dropped = 0
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                # The terminal is gone; the records on disk say the same.
                continue
