"""Messages to the watch thread, and a descriptor that wakes it. Any thread posts, one thread takes.

It must not know what a message does.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator

Message = Callable[[], None]


class Mailbox:
    """Messages in the order in which they were posted.

    Attributes:
        wake_fd: readable when there may be messages.
    """

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.wake_fd, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def post(self, message: Message) -> None:
        """Have ``message`` called in the thread that takes; never waits."""
        self._messages.put(message)
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            # Full means it will wake anyway; closed means it has ended.
            return

    def take(self) -> Iterator[Message]:
        """What is there, and what comes meanwhile."""
        self._drain_wake()
        while True:
            try:
                yield self._messages.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Close the descriptors; what is posted later is never taken."""
        os.close(self.wake_fd)
        os.close(self._wake_write)

    def _drain_wake(self) -> None:
        try:
            while os.read(self.wake_fd, 4096):
                pass
        except BlockingIOError:
            return
