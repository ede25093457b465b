"""Holds a worker that raised for a moment, so that the evidence of its peers can still be taken.

When a rank ends, its gloo peers fail with "connection closed" within 14-68 ms (measured) and their stacks
are gone. So the raising rank keeps its sockets open: it reports the exception in the page, wakes the agent
through the timers' named pipe, and waits until the agent answers, is gone, or 2 s are over. It knows nothing
of what the agent does in that time. An exit by signal or ``os._exit`` cannot be held.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from types import TracebackType
from typing import Final

from rankscope.watchdog.page import SlotWriter
from rankscope.watchdog.probe.process_stat import is_alive

HOLD_TIMEOUT: Final = 2.0
"""Seconds a raising worker waits at most."""
_OURS: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
_STANDARD_LIBRARY: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_POLL: Final = 0.005
"""Seconds between two looks at the page."""


class Hold:
    """Reports an uncaught exception and waits for the agent's word. Never raises."""

    def __init__(
        self,
        writer: SlotWriter,
        *,
        rank: int,
        agent_pid: int,
        timer_file: str,
        timeout: float = HOLD_TIMEOUT,
    ) -> None:
        """Make a hold.

        Args:
            writer: this worker's slot.
            rank: its global rank.
            agent_pid: who answers; 0 for nobody, then there is no waiting.
            timer_file: named pipe that wakes the agent, empty for none.
            timeout: seconds to wait at most.
        """
        self._writer = writer
        self._rank = rank
        self._agent_pid = agent_pid
        self._timer_file = timer_file
        self._timeout = timeout
        self._is_on = True

    def silence(self) -> None:
        """Switch it off: a forked child is no rank."""
        self._is_on = False

    def report(self, exception: BaseException) -> None:
        """Write the exception into the page; wait for the agent if it asked raising workers to.

        ``KeyboardInterrupt`` and ``SystemExit`` are no failures and pass at once.
        """
        if not self._is_on or isinstance(exception, KeyboardInterrupt | SystemExit | GeneratorExit):
            return
        # The edge to the worker's own end, which goes on whatever happens here.
        with contextlib.suppress(Exception, KeyboardInterrupt):
            self._report(exception)

    def _report(self, exception: BaseException) -> None:
        self._writer.raised(last_line(exception), time.monotonic_ns(), origin(exception))
        if not self._writer.hold_wanted() or not is_alive(self._agent_pid):
            return
        self._wake_agent()
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline and not self._writer.answered() and is_alive(self._agent_pid):
            time.sleep(_POLL)

    def _wake_agent(self) -> None:
        """Write one event line into the named pipe; a pipe that is full, gone or no pipe is let be."""
        line = f'{{"rankscope":1,"event":"raised","pid":{os.getpid()},"rank":{self._rank}}}\n'
        try:
            fd = os.open(self._timer_file, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, line.encode())
        except OSError:
            pass
        finally:
            os.close(fd)


def last_line(exception: BaseException) -> str:
    """``ValueError: text`` as the traceback's last line has it, without the text's further lines."""
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ not in {"builtins", "__main__"}:
        name = f"{kind.__module__}.{name}"
    try:
        text = str(exception).partition("\n")[0]
    except Exception:  # noqa: BLE001 - __str__ is the user's
        text = "<exception str() failed>"
    return f"{name}: {text}" if text else name


def origin(exception: BaseException) -> tuple[str, str, int] | None:
    """Function, file and line of the user's innermost frame that the exception came through."""
    found: tuple[str, str, int] | None = None
    trace = exception.__traceback__
    innermost = None
    while trace is not None:
        code = trace.tb_frame.f_code
        innermost = (code.co_name, code.co_filename, trace.tb_lineno)
        if not _is_library(code.co_filename):
            found = innermost
        trace = trace.tb_next
    return found or innermost


def _is_library(file: str) -> bool:
    """Installed packages, the standard library, code without a file, and ourselves."""
    installed = f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file
    return file.startswith(("<", _STANDARD_LIBRARY, _OURS)) or installed


def install(hold: Hold) -> None:
    """Put ``hold`` before the present ``sys.excepthook``; a hook that is set later replaces both."""
    previous = sys.excepthook
    main = threading.main_thread()

    def excepthook(
        kind: type[BaseException], exception: BaseException, trace: TracebackType | None
    ) -> object:
        # A script may have taken threading apart; its exception is shown all the same.
        with contextlib.suppress(Exception):
            if threading.current_thread() is main:
                hold.report(exception)
        return previous(kind, exception, trace)

    sys.excepthook = excepthook
