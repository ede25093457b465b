"""What the drain still has to do once the agent asked it to finish, and when it has waited long enough.

Pipes and files have a deadline. A console has none as long as it takes bytes: one that is slow gets
everything, one that has taken nothing for ``console_idle`` seconds is given up. Knows no descriptors
but the pipes' sizes; the drain's lock is held around every call.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable

from rankscope.agent.logs.console import Console
from rankscope.agent.logs.stream import Stream


class Finish:
    """A finish that the agent asked for: what was in each pipe then has to be read, filed and shown.

    What comes later (from a grandchild that keeps a pipe open) is not waited for.
    """

    def __init__(
        self,
        *,
        deadline: float,
        console_idle: float,
        reading: Iterable[Stream],
        ended: Iterable[Stream],
        consoles: Iterable[Console],
    ) -> None:
        """Take down what is due.

        Args:
            deadline: of pipes and files, on the drain's clock.
            console_idle: seconds that a console may take nothing.
            reading: streams whose pipes are open.
            ended: streams whose pipes are closed.
            consoles: each once.
        """
        self._deadline = deadline
        self._console_idle = console_idle
        self.unread = {stream: fcntl.fcntl(stream.fd, fcntl.F_GETPIPE_SZ) for stream in reading}
        self._marks = {stream: stream.total for stream in ended}
        self._taken = {console: console.taken_bytes for console in consoles}
        self._idle = dict.fromkeys(self._taken, 0.0)

    def note_read(self, stream: Stream, size: int) -> None:
        """``size`` bytes were read, 0 for an empty pipe; more than it holds is newer than the finish."""
        if stream in self.unread:
            self.unread[stream] -= size
            if not size or self.unread[stream] <= 0:
                del self.unread[stream]
                self._marks[stream] = stream.total

    def unshown_bytes(self) -> int:
        """Bytes that are due and not shown."""
        return sum(map(self._unshown, self._marks))

    def unfiled_bytes(self) -> int:
        """Bytes that are due and not in a file that is still written."""
        return sum(max(0, mark - s.filed) for s, mark in self._marks.items() if not s.file_failed)

    def is_over(self, now: float, *, elapsed: float) -> bool:
        """Whether all is done, or what is left is given up.

        Args:
            now: on the deadline's clock.
            elapsed: seconds since the last call, as far as this process was running.
        """
        waited_for = [console for console in self._taken if self._is_waited_for(console, elapsed)]
        filed = not self.unread and not self.unfiled_bytes()
        return not waited_for and (filed or now >= self._deadline)

    def _is_waited_for(self, console: Console, elapsed: float) -> bool:
        taken = console.taken_bytes
        self._idle[console] = self._idle[console] + elapsed if taken == self._taken[console] else 0.0
        self._taken[console] = taken
        behind = any(self._unshown(stream) for stream in console.streams if stream in self._marks)
        return behind and self._idle[console] < self._console_idle

    def _unshown(self, stream: Stream) -> int:
        return max(0, self._marks[stream] - stream.shown) if stream.has_console else 0
