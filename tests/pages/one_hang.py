"""The story of one hang, from the events of a real run of ``diag demo`` that lie beside the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.pages.parts import table

from rankscope.diag.store.events import Event, read_events, seconds_between

RECORDS: Final = Path(__file__).resolve().parents[2] / "docs" / "examples" / "records"


def render() -> str:
    """One row an event: seconds since the last progress before the hang, what happened, in its own words."""
    (path,) = RECORDS.glob("jobs/*/nodes/*/events.jsonl")
    events, _unreadable = read_events(path)
    names = [event.name for event in events]
    confirmed = names.index("incident.confirmed")
    suspected = [event for event in events[:confirmed] if event.name == "suspected"][-1]
    silent = _number(suspected, "seconds")
    rows = [
        [f"{_offset(suspected, event) + silent:+.1f}", f"`{event.name}`", _words(event)] for event in events
    ]
    return table(["seconds", "event", "what it says"], rows)


def _offset(origin: Event, event: Event) -> float:
    after = seconds_between(origin, event)
    return after if after > 0 else -seconds_between(event, origin)


def _words(event: Event) -> str:
    for field in ("summary", "reason", "result"):
        text = event.data.get(field)
        if isinstance(text, str) and text:
            return text
    return ", ".join(
        f"{name} {event.data[name]}" for name in ("restart_count", "number", "steps") if name in event.data
    )


def _number(event: Event, field: str) -> float:
    value = event.data.get(field)
    return float(value) if isinstance(value, int | float) else 0.0
