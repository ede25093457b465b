"""Signals that end the agent: raised as torch's ``SignalException``, put off while that would do harm.

The first signal is raised in the main thread, as torch does it. While that signal is carried out, or where
the main thread must not be interrupted (``hold``), further ones are only counted: whoever waits there looks
at the count and hurries. Python runs a handler only when the main thread comes back from C, and in torch's
store it may not (a frozen host): a thread of our own hears every signal through ``signal.set_wakeup_fd``,
and when nobody has acted on it after a moment it asks for help. Workers that are forked inherit all of this:
in them a signal is raised at once, as torch has it, and nothing of it reaches the agent. It must not know
what ending the agent takes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Generator
from types import FrameType
from typing import Final

from torch.distributed.elastic.multiprocessing import SignalException, api

logger = logging.getLogger(__name__)
PATIENCE: Final = 1.0
"""Seconds that the main thread has to act on a signal before somebody else does."""
ONE_ASKING: Final = 1.0
"""Seconds in which signals count once: ``timeout`` and some schedulers send one to process and group."""
_TORCHS_HANDLER: Final = "_terminate_process_handler"
_END: Final = 0
_PAUSE: Final = 0.02
_started: weakref.WeakSet[StopSignals] = weakref.WeakSet()


class StopSignals:
    """The signals of one agent process.

    Attributes:
        received: all that came, in order, with the time of each (monotonic seconds).
    """

    def __init__(self) -> None:
        self.received: tuple[tuple[float, signal.Signals], ...] = ()
        self._pending: signal.Signals | None = None
        self._held = 0
        self._ending = False
        self._acting = False
        self._handled = 0
        self._handled_at = -math.inf
        self._armed_from = 0
        self._heard: tuple[float, signal.Signals] | None = None
        self._pipe: tuple[int, int] | None = None
        self._woke_before = -1
        self._thread: threading.Thread | None = None
        self._is_worker = False

    # The main thread.

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The handler of every signal that ends the agent.

        Raises:
            SignalException: nothing is held, and no signal is being carried out.
        """
        sent = signal.Signals(number)
        if self._is_worker:
            self._raise(sent)
        self.received = (*self.received, (time.monotonic(), sent))
        if self._ending:
            self._note_handled()
            return
        if self._held:
            self._pending = self._pending or sent
            return
        self._raise(sent)

    def _raise(self, sent: signal.Signals) -> None:
        self._ending = True
        raise SignalException(f"Process {os.getpid()} got signal: {sent}", sigval=sent)

    @contextlib.contextmanager
    def hold(self) -> Generator[None]:
        """Put signals off; one that came meanwhile is raised at the end (main thread).

        Raises:
            SignalException: at the end.
        """
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        pending = self._pending
        if pending is not None and not self._held:
            self._pending = None
            self._raise(pending)

    @property
    def ending(self) -> bool:
        """Whether a signal has been raised, and is or will be carried out."""
        return self._ending

    @property
    def is_acted_on(self) -> bool:
        """Whether the main thread carries out what a signal asked for."""
        return self._acting

    def acting(self) -> None:
        """If a signal was raised: the main thread carries it out, nobody else needs to."""
        self._acting = self._ending
        self._note_handled()

    def _note_handled(self) -> None:
        """What came up to now is in the main thread's hands, whatever ``arm`` does later."""
        if self._acting:
            self._handled, self._handled_at = len(self.received), time.monotonic()

    def arm(self) -> None:
        """From here on a signal raises again (main thread)."""
        self._ending = self._acting = False
        self._armed_from = len(self.received)
        self._heard = None

    @contextlib.contextmanager
    def in_torchs_place(self) -> Generator[None]:
        """Let torch register this handler instead of its own when it starts processes."""
        torchs = getattr(api, _TORCHS_HANDLER, None)
        if torchs is None:
            yield
            return
        setattr(api, _TORCHS_HANDLER, self.handle)
        try:
            yield
        finally:
            setattr(api, _TORCHS_HANDLER, torchs)

    @property
    def first(self) -> tuple[float, signal.Signals] | None:
        """The first signal since ``arm`` and when it came, also one that only our thread has heard."""
        return next(iter(self.received[self._armed_from :]), self._heard)

    def askings(self) -> int:
        """How often an end has been asked for since ``arm``, repetitions left out."""
        asked: list[float] = []
        for at, _sent in self.received[self._armed_from :]:
            if not asked or at - asked[-1] >= ONE_ASKING:
                asked.append(at)
        return len(asked)

    # The thread that hears what the main thread cannot.

    def start(self, help_out: Callable[[signal.Signals], None]) -> None:
        """Hear signals beside the main thread, which must call this.

        Args:
            help_out: called in our thread when a signal came and nobody acts on it.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        try:
            self._woke_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        except ValueError:
            self._woke_before = -1  # another thread than the main one: it gets no signals either
        self._pipe = read, write
        _started.add(self)
        self._thread = threading.Thread(
            target=self._listen, args=(read, help_out), name="rankscope-signals", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """End the thread; left behind when it is the one that ends the agent."""
        pipe, self._pipe = self._pipe, None
        if pipe is None or self._thread is None or self._thread is threading.current_thread():
            return
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(self._woke_before)
        with contextlib.suppress(BlockingIOError):  # full of signals: the thread is left behind
            os.write(pipe[1], bytes([_END]))
        self._thread.join(timeout)
        if not self._thread.is_alive():
            for fd in pipe:
                os.close(fd)

    def _listen(self, fd: int, help_out: Callable[[signal.Signals], None]) -> None:
        while True:
            heard = os.read(fd, 1)[0]
            if heard == _END:
                return
            # Not every signal with a Python handler ends the agent.
            if signal.getsignal(heard) != self.handle:
                continue
            at = time.monotonic()
            if not self._is_handled_in_time():
                self._heard = self._heard or (at, signal.Signals(heard))
                try:
                    help_out(signal.Signals(heard))
                except Exception:  # the thread's edge; the next signal is still heard
                    logger.exception("rankscope could not end the agent beside its main thread")

    def _is_handled_in_time(self) -> bool:
        """Whether the main thread takes the signal that was just heard into its hands."""
        # Its Python handler may have run before this thread did; one that repeats another needs no answer.
        since = time.monotonic() - ONE_ASKING
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._handled == len(self.received) and self._handled_at >= since:
                return True
            if self._held:
                deadline = time.monotonic() + PATIENCE
            time.sleep(_PAUSE)
        return False

    def forked(self) -> None:
        """This process is a worker that was forked from the agent."""
        if self._pipe is None:
            return
        self._is_worker, self._pipe, self._thread = True, None, None
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)


def _forked() -> None:
    for signals in tuple(_started):
        signals.forked()


os.register_at_fork(after_in_child=_forked)
