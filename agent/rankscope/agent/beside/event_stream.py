"""Events as JSON lines on standard output, for a program that reads along (``--json``).

A reader that is slow must not hold the watch, so lines go through a bounded queue to a thread; what does not
fit is in the job's records all the same.
"""

from __future__ import annotations

import json
import os
import queue
import select
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
        say_once: called with a line when events cannot be written although somebody may read (a full disk);
            those are left out, and the next are tried.
    """

    def __init__(self, fd: int, on_gone: Callable[[], None], say_once: Callable[[str], None]) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._say_once = say_once
        self._is_torn = False
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
                if not gone:
                    self._write(line)
            except BrokenPipeError:
                gone = True
                self._on_gone()
            except OSError as error:
                self._say_once(
                    f"events cannot be written to standard output ({error.strerror}) and are left out there; "
                    "the job is watched on"
                )

    def _write(self, line: bytes) -> None:
        """Write one line; of one that was cut off before, the rest of the line stays empty."""
        data = b"\n" + line if self._is_torn else line
        while data:
            try:
                written = os.write(self._fd, data)
            except BlockingIOError:  # a pipe that its reader has made non-blocking
                select.select([], [self._fd], [])
                continue
            data = data[written:]
            self._is_torn = bool(data)
