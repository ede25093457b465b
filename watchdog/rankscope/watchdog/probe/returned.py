"""Stamps the page when the script has run to its end and the interpreter goes on to wait for other threads.

A process that has its work behind it and does not end looks like one that hangs in its work; the stamp tells
them apart. ``threading`` (3.9 and newer) calls functions that it keeps for ``concurrent.futures`` before it
joins threads. The newest comes first, so that a pool which never ends keeps ours from being called; the
probe's thread therefore looks too, whether the shutdown has begun. Both names are private to Python: without
them there is no stamp. How the script ended, by its last line or by an exception, does not matter here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable


class Returned:
    """The stamp, made once. Never raises."""

    def __init__(
        self, record: Callable[[int], None], *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Prepare the stamp.

        Args:
            record: called with the time in ns.
            clock: monotonic time in ns.
        """
        self._record = record
        self._clock = clock
        self._is_on = True

    def watch(self) -> None:
        """Have the stamp made when the main thread has ended."""
        register: Callable[[Callable[[], None]], None] | None = getattr(threading, "_register_atexit", None)
        if register is not None:
            # RuntimeError: the end has begun already; anything else: a Python that changed it.
            with contextlib.suppress(Exception):
                register(self.stamp)

    def look(self) -> None:
        """Make the stamp if the shutdown has begun; for the probe's thread."""
        if getattr(threading, "_SHUTTING_DOWN", False):
            self.stamp()

    def stamp(self) -> None:
        """Write the time, the first time."""
        if not self._is_on:
            return
        self._is_on = False
        # The edge to the interpreter's end.
        with contextlib.suppress(Exception):
            self._record(self._clock())

    def silence(self) -> None:
        """Switch it off: a forked child is no rank."""
        self._is_on = False
