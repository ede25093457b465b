"""Events as JSON lines on standard output, for a program that reads along (``--json``).

A reader that is slow must not hold the watch, so lines go through a bounded queue to a thread; what does not
fit is in the job's records all the same.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from rankscope.diag.store.events import Event

_CAPACITY: Final = 10_000


class EventStream:
    """Owner of the thread ``rankscope-events``.

    Args:
        fd: where to write.
        on_gone: called once when nobody reads any more.
    """

    def __init__(self, fd: int, on_gone: Callable[[], None]) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._lines: queue.Queue[bytes | None] = queue.Queue(_CAPACITY)
        self._thread = threading.Thread(target=self._write_all, name="rankscope-events", daemon=True)
        self._thread.start()

    def write(self, job: str, event: Event) -> None:
        """Write one event, with the job's name; never blocks, never raises."""
        fields = {**msgspec.to_builtins(event), "job": job}
        try:
            self._lines.put_nowait(json.dumps(fields).encode() + b"\n")
        except queue.Full:
            return

    def close(self, timeout: float = 1.0) -> None:
        """Write what is queued and end the thread; gives up after ``timeout`` seconds."""
        try:
            self._lines.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _write_all(self) -> None:
        gone = False
        while (line := self._lines.get()) is not None:
            try:
                while line and not gone:
                    line = line[os.write(self._fd, line) :]
            except OSError:
                gone = True
                self._on_gone()
