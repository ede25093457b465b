"""Which events the words of ``--notify-on`` stand for. ``notice.failed`` is none of them, or it went on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from rankscope.diag.store.events import TOLD_ELSEWHERE, TYPE_PREFIX, Event

TOPICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "incident": ("incident.confirmed", "incident.recovered", "slow", "worker.failed", "worker.left"),
        "decision": ("decision",),
        "restart": ("restart", "isolated"),
        "message": ("message", "settings.changed"),
        "end": ("stopping", "job.ended"),
    }
)
"""Word to the names of events, without their prefix."""


def is_for_the_records_only(event: Event) -> bool:
    """Whether nobody is told of it here.

    So it is with a decision to do nothing but write it down (``--on-hang log``), and with an incident of the
    whole job of which another node's agent tells.
    """
    is_log = event.name == "decision" and event.data.get("action") == "log"
    return is_log or event.data.get(TOLD_ELSEWHERE) is True


def wanted_types(words: Iterable[str]) -> frozenset[str]:
    """The event types that notices are sent for; a word that is not known stands for none."""
    return frozenset(TYPE_PREFIX + name for word in words for name in TOPICS.get(word, ()))
