"""The notices for one target: their order, their tries, when one is given up. Pure: times and chance come in.

One notice at a time, so that they arrive in order. A lane is told what happened and says what is due; it has
no idea of clocks, processes or HTTP.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from rankscope.diag.store.events import Event

_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How much, how often and how long; seconds.

    Attributes:
        waiting: notices that may wait for one target; past it the oldest is dropped.
        tries: for one notice.
        try_seconds: for one try, names, connection and answer included.
        notice_seconds: from a notice's first try to its last.
        first_pause: before the second try; each further one waits twice as long.
        longest_pause: most that is waited so.
        longest_wait: most that a server's ``Retry-After`` is waited for; one that asks for more gives the
            notice up, and the next one waits this long.
        desk_late: after a try's deadline until the desk itself counts as stuck; it needs one second.
    """

    waiting: int = 100
    tries: int = 6
    try_seconds: float = 10.0
    notice_seconds: float = 120.0
    first_pause: float = 1.0
    longest_pause: float = 30.0
    longest_wait: float = 60.0
    desk_late: float = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended.

    Attributes:
        reason: why it did not succeed, a phrase without secrets; empty when it did.
        again: whether another try may do better.
        wait: seconds that the server asks to wait.
        output: what a command said, its end.
    """

    reason: str = ""
    again: bool = False
    wait: float | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A notice that was not delivered."""

    event: Event
    reason: str
    tries: int
    seconds: float
    output: str = ""


class Lane:
    """Notices on their way to one target.

    Attributes:
        dropped: notices that the full queue had to drop since this was last set to 0.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Event] = deque()
        self._tries = 0
        self._began = 0.0
        self._due = 0.0
        self._not_before = 0.0
        self._is_trying = False
        self._last = Outcome()
        self.dropped = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing left to deliver."""
        return not self._waiting

    def offer(self, event: Event) -> None:
        """Take a notice; the oldest one that has not been tried makes room for it."""
        if len(self._waiting) >= self._limits.waiting:
            # The first one may have been delivered already, and its pauses spare the server.
            del self._waiting[1 if self._tries and len(self._waiting) > 1 else 0]
            self.dropped += 1
        self._waiting.append(event)

    def due(self) -> float | None:
        """When the next try begins; ``None`` while one is under way or nothing waits."""
        if self._is_trying or not self._waiting:
            return None
        return max(self._due, self._not_before)

    def begin(self, now: float) -> Event:
        """Begin the next try; what is to be sent."""
        if self._tries == 0:
            self._began = now
        self._tries += 1
        self._is_trying = True
        return self._waiting[0]

    def end(self, outcome: Outcome, now: float, *, chance: float) -> GivenUp | None:
        """The try is over; what was given up by that.

        Args:
            outcome: how it ended.
            now: when, monotonic seconds.
            chance: a random number from 0 to 1, so that many agents do not come back together.
        """
        limits = self._limits
        self._is_trying = False
        self._last = outcome
        if not outcome.reason:
            self._next()
            return None
        asked = outcome.wait or 0.0
        self._not_before = now + min(asked, limits.longest_wait)
        # Another power would be no float; the pause has long been the longest one.
        pause = min(limits.longest_pause, limits.first_pause * 2.0 ** min(self._tries - 1, 30))
        pause = max(pause * (_HALF + _HALF * chance), asked)
        hopeless = not outcome.again or self._tries >= limits.tries or asked > limits.longest_wait
        if hopeless or now + pause > self._began + limits.notice_seconds:
            return self._give_up(now)
        self._due = now + pause
        return None

    def hurry(self, at: float) -> None:
        """The job ends: begin the next try at ``at``, unless it is due before or the server asks to wait."""
        self._due = min(self._due, at)

    def abandon(self, reason: str, now: float) -> list[GivenUp]:
        """Give up everything that is left; ``reason`` says why."""
        given_up: list[GivenUp] = []
        while self._waiting:
            before = self._last.reason if self._tries and not self._is_trying else ""
            self._last = Outcome(
                f"{reason} (before: {before})" if before else reason, output=self._last.output
            )
            given_up.append(self._give_up(now))
        return given_up

    def _give_up(self, now: float) -> GivenUp:
        seconds = now - self._began if self._tries else 0.0
        last = self._last
        given_up = GivenUp(self._waiting[0], last.reason, self._tries, seconds, last.output)
        self._next()
        return given_up

    def _next(self) -> None:
        self._waiting.popleft()
        self._is_trying = False
        self._tries, self._due, self._last = 0, 0.0, Outcome()
