"""What workers say through the pipe (``watchdog.job_monitor``): checked, bounded, recorded and shown.

Any process of the job can write such a line, so nothing in it is taken as it comes. A rank that talks without
end costs a bounded number of records a minute; what is left out is counted, and of parameters the last values
are recorded later. Nothing here decides: the limits that a rank sets reach the detector through the page.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rankscope.agent.records.ledger import Ledger
from rankscope.watchdog.sdk.config import ACTED_ON, MAX_KEYWORDS, PARAMETERS
from rankscope.watchdog.timers.wire import Event, Scalar

MOST_A_MINUTE: Final = 100
"""Messages, and as many changed settings, that are recorded a minute."""
_MINUTE: Final = 60.0
_SHOWN_CHARACTERS: Final = 200
_MAX_INTEGER: Final = 2**63 - 1


class Allowance:
    """How many things may still happen this minute."""

    def __init__(self, most: int = MOST_A_MINUTE) -> None:
        self._most = most
        self._since = -math.inf
        self._used = 0
        self.refused = 0
        """Since the last time something was allowed."""

    def has_room(self, now: float) -> bool:
        """Whether one more may happen at ``now`` (monotonic seconds), without taking it."""
        if now - self._since >= _MINUTE:
            self._since, self._used = now, 0
        return self._used < self._most

    def take(self, now: float) -> bool:
        """Whether one more may happen at ``now`` (monotonic seconds)."""
        if not self.has_room(now):
            self.refused += 1
            return False
        self._used += 1
        return True

    def settle(self) -> int:
        """How many were refused since this was last asked."""
        refused, self.refused = self.refused, 0
        return refused


@dataclass(slots=True)
class _Waiting:
    """Changes of one rank for which there was no room: the last value of each parameter."""

    values: dict[str, object] = field(default_factory=dict[str, object])
    changes: int = 0


class WorkerWords:
    """Takes in the events of the workers' SDK. ``take`` is called by the timers' thread alone.

    Args:
        ledger: where they are recorded.
        say: shows a line on the agent's console.
        once: the same, unless the line has been shown before.
    """

    def __init__(self, ledger: Ledger, *, say: Callable[[str], None], once: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._say = say
        self._once = once
        self._messages = Allowance()
        self._changes = Allowance()
        self._waiting: dict[int, _Waiting] = {}
        self._lock = threading.Lock()
        self._keywords: dict[int, tuple[str, ...]] = {}

    @property
    def retryable_errors(self) -> frozenset[str]:
        """What the ranks have named as worth a retry; may be asked by any thread."""
        return frozenset(keyword for keywords in self._keywords.copy().values() for keyword in keywords)

    def take(self, event: Event, *, ranks: Collection[int], now: float) -> None:
        """Take in one event.

        Args:
            event: a line of the pipe.
            ranks: this agent's ranks; what claims to come from another is dropped.
            now: monotonic seconds.
        """
        rank = event.data.get("rank")
        if not isinstance(rank, int) or rank not in ranks:
            return
        with self._lock:
            while self._waiting and self._changes.take(now):
                self._record_waiting(next(iter(self._waiting)))
            if event.name == "message":
                self._message(rank, event.data.get("content"), now)
            elif event.name == "settings":
                self._settings(rank, event.data.get("values"), now)
            elif event.name == "retryable_errors":
                self._retryable(rank, event.data, now)

    def finish(self) -> None:
        """Record what still waits for room: the job ends. A record a rank, so it needs no allowance."""
        with self._lock:
            for rank in list(self._waiting):
                self._record_waiting(rank)

    def _change(self, rank: int, values: Mapping[str, object], now: float) -> None:
        """Record changed parameters, or keep the last values until there is room."""
        if self._changes.take(now):
            self._ledger.settings_changed(rank, values)
            return
        self._once(
            f"more than {MOST_A_MINUTE} changed settings of workers in a minute: "
            "of the rest only the last values will be recorded"
        )
        waiting = self._waiting.setdefault(rank, _Waiting())
        waiting.values.update(values)
        waiting.changes += 1

    def _record_waiting(self, rank: int) -> None:
        waiting = self._waiting.pop(rank)
        self._ledger.settings_changed(rank, waiting.values, left_out=waiting.changes - 1)

    def _message(self, rank: int, content: object, now: float) -> None:
        if not isinstance(content, str):
            return
        if not self._messages.take(now):
            self._ledger.message_left_out()
            self._once(
                f"more than {MOST_A_MINUTE} messages of workers in a minute: the rest are only counted"
            )
            return
        self._ledger.message(rank, storable(content), left_out=self._messages.settle())
        self._say(f"rank {rank} says: {one_line(content)}")

    def _settings(self, rank: int, values: object, now: float) -> None:
        if not isinstance(values, dict):
            return
        given: dict[object, object] = values
        known = {name: given[name] for name in PARAMETERS if name in given}
        if not known:
            return
        self._change(rank, {name: _plain(value) for name, value in known.items()}, now)
        idle = [name for name in known if name not in ACTED_ON]
        if idle:
            names = ", ".join(idle)
            self._once(f"set by a worker and only recorded: {names}; what is to be acted on goes to diag run")

    def _retryable(self, rank: int, data: Mapping[str, object], now: float) -> None:
        """One keyword of a list; the first replaces what the rank had named, the last is recorded."""
        keyword, index, count = data.get("keyword"), data.get("index"), data.get("count")
        if not isinstance(index, int) or not isinstance(count, int):
            return
        if not isinstance(keyword, str) and (keyword is not None or index != 0):
            return
        before = self._keywords.get(rank, ()) if index > 0 else ()
        if isinstance(keyword, str) and len(before) < MAX_KEYWORDS:
            self._keywords[rank] = (*before, storable(keyword))
        elif keyword is None:
            self._keywords[rank] = ()
        if index >= count - 1:
            self._change(rank, {"retryable_errors": list(self._keywords.get(rank, ()))}, now)


def storable(text: str) -> str:
    """``text`` with lone surrogates written out: a record is UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """``text`` for a terminal: one bounded line, nothing that a terminal would act on."""
    shown = "".join(
        character if character.isprintable() else " " for character in text[: 4 * _SHOWN_CHARACTERS]
    )
    words = " ".join(shown.split())
    longer = len(words) > _SHOWN_CHARACTERS or len(text) > 4 * _SHOWN_CHARACTERS
    return words[:_SHOWN_CHARACTERS] + (" ..." if longer else "")


def _plain(value: object) -> Scalar:
    """A value that any reader of the record understands."""
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= _MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return storable(str(value)[:_SHOWN_CHARACTERS])
