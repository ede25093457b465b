"""What is asked of an agent over its control socket, and what it answers: one JSON line each, a connection.

Values only, and their bounds; nothing here knows sockets, or how anything is answered. An answer is
``{"ok": ...}`` or ``{"error": {"kind": ..., "detail": ...}}``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import Event

SOCKET_NAME: Final = "control"
"""In the agent's run-time folder."""
MAX_REQUEST: Final = 64 * 1024
MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of a line: a thousand events, or the diagnosis of more ranks than a node has."""
ANALYZE_SECONDS: Final = 60.0
"""That an analysis may take: two looks, of up to 20 s each where tools do not answer, and other looks."""
ANSWER_SECONDS: Final = 5.0
"""That any other answer may take."""

Value = str | int | float | bool | list[str | int | float] | dict[str, str] | None
"""A setting's value, as JSON has it."""
Kind = Literal["busy", "bad_request", "unavailable", "failed"]


class Analyze(msgspec.Struct, frozen=True, tag_field="op", tag="analyze"):
    """Take a pair of snapshots now and judge it; answered with the ``Diagnosis`` of ``analyze --json``.

    Attributes:
        by: who asks, for the record: an address, never a token.
    """

    by: str = ""


class ChangeSettings(msgspec.Struct, frozen=True, tag_field="op", tag="settings"):
    """Change settings while the job runs; without any: tell which are in force.

    Attributes:
        change: by the option's name, with dashes or underscores; texts as flags take them, or JSON values. A
            ``null`` is ``auto`` or ``off``, whichever the option has.
        by: as there.
    """

    change: dict[str, Value] = {}
    by: str = ""


class GetRecords(msgspec.Struct, frozen=True, tag_field="op", tag="records"):
    """Tell what is in memory because it could not be written, or not yet."""


Request = Analyze | ChangeSettings | GetRecords


class Change(msgspec.Struct, frozen=True):
    """One setting that was changed."""

    old: Value
    new: Value


class InForce(msgspec.Struct, frozen=True):
    """One setting: its value and where it came from."""

    value: Value
    source: str
    changeable: bool = False


class SettingsAnswer(msgspec.Struct, frozen=True):
    """What is in force after a change.

    Attributes:
        changed: those whose value is another one now, by name; one that had this value already is not here.
        settings: all of them, without secrets.
    """

    changed: dict[str, Change] = {}
    settings: dict[str, InForce] = {}


class RecordsAnswer(msgspec.Struct, frozen=True):
    """What is only in memory, oldest first.

    Attributes:
        trouble: what is in the way of writing, ``""`` when nothing is.
        events: those that are not on disk.
        diagnoses: of the last incidents that are not on disk as a whole.
    """

    trouble: str = ""
    events: tuple[Event, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer.

    Attributes:
        kind: ``busy``: another analysis is under way; ``bad_request``: what was asked is not allowed;
            ``unavailable``: the agent cannot answer that now (no workers, it ends, it cannot be reached);
            ``failed``: it went wrong.
        detail: one line for a person.
        retry_after: seconds after which it may be worth asking again, ``None`` when that is not known.
    """

    kind: Kind
    detail: str
    retry_after: int | None = None


class ControlError(Exception):
    """A refusal, raised.

    Args:
        refusal: what was answered, or why nothing was.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


def refused(kind: Kind, detail: str, *, retry_after: int | None = None) -> ControlError:
    """An error that is answered as it is."""
    return ControlError(Refusal(kind, detail, retry_after))


class Answer(msgspec.Struct, frozen=True):
    """An answer's envelope as it is read; one of both is there."""

    ok: msgspec.Raw = msgspec.Raw()
    error: Refusal | None = None
