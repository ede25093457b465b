"""The probe's thread: once a second it stamps the page and publishes the process groups.

A stale stamp in a running process says that the GIL is held in C. The thread is a daemon, ends at interpreter
exit without being waited for longer than it needs, and keeps quiet whatever happens in the process.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from rankscope.watchdog.page import GroupSeq, SlotWriter

if TYPE_CHECKING:
    from rankscope.watchdog.probe.groups import GroupReader

PERIOD: Final = 1.0
"""Seconds between two beats."""
_STOP_TIMEOUT: Final = 0.5
"""Seconds that interpreter exit waits for a beat in progress (0.1 ms, or one learning dump of 20 ms)."""
_DISTRIBUTED: Final = "torch.distributed.distributed_c10d"


class Beat:
    """Owner of the thread ``rankscope-probe``."""

    def __init__(self, writer: SlotWriter, *, period: float = PERIOD) -> None:
        """Prepare, but do not start, the thread; ``period`` is in seconds."""
        self._writer = writer
        self._period = period
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-probe", daemon=True)
        self._reader: GroupReader | None = None
        self._published: tuple[GroupSeq, ...] = ()

    def start(self) -> None:
        """Start beating; ends by ``stop``, at the latest at interpreter exit."""
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it, a fraction of a second at most."""
        atexit.unregister(self.stop)
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT)

    def silence(self) -> None:
        """Forget the thread in a forked child, where it does not exist."""
        atexit.unregister(self.stop)

    def _run(self) -> None:
        while True:
            # The thread's edge: whatever torch's registry is just going through, the next beat may do better.
            with contextlib.suppress(Exception):
                self.once()
            if self._stopped.wait(self._period):
                return

    def once(self) -> None:
        """One beat: the stamp, then the groups if torch.distributed is in use."""
        self._writer.beat(time.monotonic_ns())
        if self._reader is None:
            if _DISTRIBUTED not in sys.modules:
                return
            # Only now: what it imports, torch has imported by then.
            from rankscope.watchdog.probe.groups import GroupReader

            self._reader = GroupReader()
        groups = self._reader.read()
        if groups != self._published:
            self._writer.groups(groups)
            self._published = groups
