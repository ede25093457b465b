"""What the events of a job tell of its incidents: when each was suspected, published, over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rankscope.diag.store.events import Event

_FIRST: Final = frozenset({"suspected", "incident.confirmed", "slow", "incident.recovered"})
_LAST: Final = frozenset({"decision"})
PUBLISHED: Final = ("incident.confirmed", "slow")


@dataclass(frozen=True, slots=True)
class Told:
    """The events of one incident by name: of each the first in time, of decisions the last."""

    events: dict[str, Event]

    def time(self, name: str) -> str | None:
        """When it was told, ``None`` for never."""
        event = self.events.get(name)
        return event.time if event is not None else None

    def data(self, name: str) -> Mapping[str, object]:
        """What it carries, nothing for an event that is not there."""
        event = self.events.get(name)
        return event.data if event is not None else {}

    def number(self, name: str, key: str) -> float | None:
        """A number that it carries."""
        value = self.data(name).get(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def whole(self, name: str, key: str) -> int | None:
        """A whole number that it carries."""
        value = self.data(name).get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str, key: str) -> str | None:
        """A text that it carries."""
        value = self.data(name).get(key)
        return value if isinstance(value, str) else None

    @property
    def published(self) -> Event | None:
        """The event with its diagnosis, ``None`` when nothing was published."""
        return next((self.events[name] for name in PUBLISHED if name in self.events), None)


NOTHING: Final = Told({})


def told_of_incidents(events: Iterable[Event]) -> dict[str, Told]:
    """What the events of all nodes tell, by incident."""
    found: dict[str, Told] = {}
    for event in events:
        if event.subject is None:
            continue
        name = event.name
        if name in _FIRST or name in _LAST:
            told = found.setdefault(event.subject, Told({})).events
            before = told.get(name)
            if before is None or (event.time < before.time) == (name in _FIRST):
                told[name] = event
    return found
