"""The probe's thread: once a second it stamps the page and publishes batches and process groups.

It also looks after the ways in which the worker answers others (``faults``, ``worker_server``). A stale
stamp in a running process says that the GIL is held in C. The thread is a daemon, ends at interpreter
exit without being waited for longer than it needs, and keeps quiet whatever happens in the process.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from rankscope.watchdog.answers import DUMP_SIGNAL
from rankscope.watchdog.page import GroupSeq, SlotWriter
from rankscope.watchdog.probe.signal_masks import all_blocked

if TYPE_CHECKING:
    from rankscope.watchdog.probe.batches import Batches
    from rankscope.watchdog.probe.faults import Faults
    from rankscope.watchdog.probe.groups import GroupReader
    from rankscope.watchdog.probe.returned import Returned
    from rankscope.watchdog.probe.worker_server import WorkerServer

PERIOD: Final = 1.0
"""Seconds between two beats."""
_STOP_TIMEOUT: Final = 0.5
"""Seconds that interpreter exit waits for a beat in progress (0.1 ms, or one learning dump of 20 ms)."""
_DISTRIBUTED: Final = "torch.distributed.distributed_c10d"


class Beat:
    """Owner of the thread ``rankscope-probe``."""

    def __init__(
        self,
        writer: SlotWriter,
        *,
        period: float = PERIOD,
        batches: Batches | None = None,
        returned: Returned | None = None,
        faults: Faults | None = None,
        server: WorkerServer | None = None,
    ) -> None:
        """Prepare, but do not start, the thread.

        Args:
            writer: this worker's slot.
            period: seconds between two beats.
            batches: what is added up and published with each beat.
            returned: looked at with each beat; so are faults and, once torch.distributed is loaded, server.
            faults: its signal is left unblocked in the thread.
            server: torch's worker server.
        """
        self._writer = writer
        self._batches = batches
        self._returned = returned
        self._faults = faults
        self._server = server
        self._period = period
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-probe", daemon=True)
        self._reader: GroupReader | None = None
        self._published: tuple[GroupSeq, ...] = ()

    def start(self) -> None:
        """Start beating; ends by ``stop``, at the latest at interpreter exit."""
        atexit.register(self.stop)
        answers = self._faults is not None and self._faults.is_ready
        with all_blocked(but=DUMP_SIGNAL if answers else None):
            self._thread.start()
        if self._faults is not None and self._thread.native_id is not None:
            self._faults.looked_after_by(self._thread.native_id)

    def stop(self) -> None:
        """End the thread and wait for it, a fraction of a second at most."""
        atexit.unregister(self.stop)
        self._stopped.set()
        # The edge to the interpreter's end: a script may have taken os or threading apart.
        with contextlib.suppress(Exception):
            if self._faults is not None:
                self._faults.withdraw()
            if self._server is not None:
                self._server.close()
        with contextlib.suppress(Exception):
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
        """One beat: the stamps, then the groups if torch.distributed is in use."""
        self._writer.beat(time.monotonic_ns(), self._batches.total() if self._batches is not None else 0)
        if self._returned is not None:
            self._returned.look()
        if self._faults is not None:
            self._faults.look()
        if self._reader is None:
            if _DISTRIBUTED not in sys.modules:
                return
            # Only now: what it imports, torch has imported by then.
            from rankscope.watchdog.probe.groups import GroupReader

            self._reader = GroupReader()
            if self._server is not None:
                self._server.look()
        groups = self._reader.read()
        if groups != self._published:
            self._writer.groups(groups)
            self._published = groups
