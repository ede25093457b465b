"""The drain that ought to run: starts it, notices that it died or stands still, starts the next one.

Owns the memory that outlives a drain. Decides when, not what: streams and messages are the caller's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from rankscope.agent.logs.counters import Counters, create_counters
from rankscope.agent.logs.drain_process import DrainProcess, Message
from rankscope.agent.logs.stream import Limits

_PAUSE_FIRST: Final = 1.0
_PAUSE_MOST: Final = 30.0
_STEADY: Final = 60.0
_LONGEST_STEP: Final = 2.0


class SupervisedDrain:
    """One drain process after the other.

    Attributes:
        counters: what each stream has written; kept over all drains.
    """

    def __init__(self, limits: Limits) -> None:
        """Start the first drain.

        Raises:
            OSError: there is no memory, or no process, to be had.
        """
        self._limits = limits
        self._counters_fd = create_counters()
        try:
            self.counters = Counters(self._counters_fd)
            self._process = DrainProcess(self._counters_fd, limits)
        except OSError:
            os.close(self._counters_fd)
            raise
        self._pause = _PAUSE_FIRST
        self._not_before = 0.0
        self._beat = 0
        self._still = 0.0
        self._asked_at = 0.0

    @property
    def pid(self) -> int:
        """Process of the present drain, or of the last one."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether there is a drain."""
        return self._process.alive()

    def send(self, message: Mapping[str, object]) -> None:
        """Send to the drain, waiting 2 s at most; one that cannot be reached will be replaced."""
        self._process.send(message)

    def receive(self, timeout: float) -> Message | None:
        """The drain's next message; None when none came within ``timeout`` seconds.

        Raises:
            EOFError: the drain has ended.
        """
        return self._process.receive(timeout)

    def kill(self) -> None:
        """End the drain at once."""
        self._process.kill()

    def replace(self) -> bool:
        """Start the next drain; False when it is too early after the last start.

        Raises:
            OSError: no process is to be had.
        """
        now = time.monotonic()
        if now < self._not_before:
            return False
        # One that was steady for a while is replaced at once; one that keeps dying less and less often.
        steady = now - self._not_before > _STEADY
        self._pause = _PAUSE_FIRST if steady else min(2 * self._pause, _PAUSE_MOST)
        self._not_before = now + self._pause
        self._process.kill()
        self._process = DrainProcess(self._counters_fd, self._limits)
        self._still = 0.0
        return True

    def stands_still(self, *, busy: bool) -> bool:
        """Whether the drain has had something to do for ``Limits.stuck`` seconds and gave no beat.

        Args:
            busy: whether it has something to do now. To be asked every tick.
        """
        now, beat = time.monotonic(), self.counters.beat()
        # Counted in small steps: an agent that was itself stopped has seen nothing.
        step = min(now - self._asked_at, _LONGEST_STEP)
        self._still = self._still + step if busy and beat == self._beat else 0.0
        self._beat, self._asked_at = beat, now
        return self._still >= self._limits.stuck

    def leave(self, timeout: float) -> bool:
        """Let go of the drain and the memory; True when the drain has ended within ``timeout`` seconds."""
        self.counters.close()
        os.close(self._counters_fd)
        return self._process.leave(timeout)
