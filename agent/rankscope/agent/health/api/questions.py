"""What the server asks of its reader, and the frame of an answer: plain values, no files, no processes.

A question is one JSON line. An answer is one JSON line with a status and a size, and then so many bytes.
"""

from __future__ import annotations

import msgspec

from rankscope.agent.health.api.answers import RankEntry
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import Event

MOST_EVENTS = 1000
"""Of one answer."""


class Unwritten(msgspec.Struct, frozen=True):
    """What an agent has in memory because it could not be written."""

    events: tuple[Event, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()


class ReadJob(msgspec.Struct, frozen=True, tag_field="read", tag="job"):
    """``JobAnswer``; ``node`` and ``phase`` are of the agent that answers."""

    node: str
    phase: str


class ReadIncidents(msgspec.Struct, frozen=True, tag_field="read", tag="incidents"):
    """``IncidentsAnswer``."""

    unwritten: Unwritten = Unwritten()


class ReadIncident(msgspec.Struct, frozen=True, tag_field="read", tag="incident"):
    """``IncidentAnswer``, or 404."""

    id: str
    unwritten: Unwritten = Unwritten()


class ReadEvents(msgspec.Struct, frozen=True, tag_field="read", tag="events"):
    """``EventsAnswer``.

    Attributes:
        since: id of an event, or a time (ISO 8601); ``""`` for all.
    """

    since: str = ""
    limit: int = MOST_EVENTS
    unwritten: Unwritten = Unwritten()


class FollowEvents(msgspec.Struct, frozen=True, tag_field="read", tag="follow"):
    """``Followed``: what came after a place in the log of all nodes.

    Attributes:
        generation: of the log that ``position`` counts in, ``""`` for none yet.
        position: number of events that are known already.
        after: id of the last event that is known, when the place is not; ``""`` for none.
        at_end: whether what is there already is of no interest.
    """

    generation: str = ""
    position: int = 0
    after: str = ""
    at_end: bool = False
    limit: int = 256


class FollowedEvent(msgspec.Struct, frozen=True):
    """One event: its id, its type without the prefix, and the stored line."""

    id: str
    name: str
    line: str


class Followed(msgspec.Struct, frozen=True):
    """A piece of the log.

    Attributes:
        generation: of the log; another one than before: a log was replaced, and it begins anew.
        position: place behind the last of ``events``.
        reset: whether the events begin with the first one because the place asked for is not known.
        last: id of the event before ``position``, ``""`` when there is none.
    """

    generation: str
    position: int
    events: tuple[FollowedEvent, ...] = ()
    reset: bool = False
    last: str = ""


class ReadRestarts(msgspec.Struct, frozen=True, tag_field="read", tag="restarts"):
    """``RestartsAnswer``."""


class ReadSettings(msgspec.Struct, frozen=True, tag_field="read", tag="settings"):
    """``SettingsBody`` as it was recorded when the agent of ``node`` started."""

    node: str


class ReadOthers(msgspec.Struct, frozen=True, tag_field="read", tag="others"):
    """``Others``: the ranks of the other nodes, as they are stored."""

    node: str


class Others(msgspec.Struct, frozen=True):
    """What is stored of the ranks of other nodes, and of how many there are in all (0 when not known)."""

    world_size: int = 0
    ranks: tuple[RankEntry, ...] = ()


class ReadPage(msgspec.Struct, frozen=True, tag_field="read", tag="page"):
    """The live page's document; ``incident`` is ``""`` for the last one of the job."""

    incident: str = ""
    unwritten: Unwritten = Unwritten()


class DrawPage(msgspec.Struct, frozen=True, tag_field="read", tag="draw"):
    """The document of a report of a diagnosis that was just made."""

    diagnosis: msgspec.Raw


Stored = ReadJob | ReadIncidents | ReadIncident | ReadRestarts | ReadSettings | ReadOthers | ReadPage
Question = Stored | ReadEvents | FollowEvents | DrawPage


class AnswerHead(msgspec.Struct, frozen=True):
    """What comes before an answer's bytes.

    Attributes:
        status: as HTTP has it; other than 200 the bytes are one line that says why.
        size: number of bytes.
    """

    status: int
    size: int
