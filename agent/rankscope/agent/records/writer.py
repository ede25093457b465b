"""A thread that writes files, so that nobody else ever waits long for a disk.

A lost share blocks whoever writes to it, without end. Here that is one thread; those who asked wait for a
bounded moment and go on, and while the thread is stuck nothing more is given to it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)
PATIENCE: Final = 2.0
"""Seconds that a write may take before it counts as lost: an fsync on a busy disk takes up to about one, and
less than the budget for evidence (5 s)."""


class WriteTimeoutError(OSError):
    """A write has not come back in time."""


class _Write:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.done = threading.Event()
        self.error: OSError | None = None


class FileWriter:
    """Runs writes one after the other in a thread of its own."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._stuck: _Write | None = None
        self._thread = threading.Thread(target=self._run, name="rankscope-records", daemon=True)
        self._thread.start()

    def run(self, action: Callable[[], None], *, timeout: float = PATIENCE) -> None:
        """Run ``action`` in the thread and wait for it.

        Raises:
            OSError: what the action raised.
            WriteTimeoutError: it has not come back in ``timeout`` seconds, or an earlier one still has not.
        """
        if self._stuck is not None and not self._stuck.done.is_set():
            raise WriteTimeoutError("the file system does not answer")
        write = _Write(action)
        self._queue.put(write)
        if not write.done.wait(timeout):
            self._stuck = write
            raise WriteTimeoutError("the file system does not answer")
        if write.error is not None:
            raise write.error

    def close(self, timeout: float = PATIENCE) -> None:
        """End the thread; one that is stuck in a write is left behind."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (write := self._queue.get()) is not None:
            try:
                write.action()
            except OSError as error:
                write.error = error
            except Exception as error:  # the edge of one write of the thread
                logger.exception("rankscope could not write a record")
                write.error = OSError(f"not writable: {error!r}")
            finally:
                write.done.set()
