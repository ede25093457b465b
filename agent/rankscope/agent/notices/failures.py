"""What is told of notices that were not delivered: a record of each, and a line for the first of a row."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rankscope.agent.notices.lane import GivenUp

logger = logging.getLogger(__name__)


class Failures:
    """Tells of failures; targets are known by their labels, which may be shown.

    Args:
        say: shows a line to the person at the terminal.
        record: gets the data of a ``notice.failed``.
    """

    def __init__(self, say: Callable[[str], None], record: Callable[[dict[str, object]], None]) -> None:
        self._say = say
        self._on_failed = record
        self._unreached: set[str] = set()

    def delivered(self, label: str) -> None:
        """A notice has reached a target."""
        if label in self._unreached:
            self._unreached.discard(label)
            self._say(f"notices reach {label} again")

    def given_up(self, label: str, given_up: GivenUp) -> None:
        """A notice is given up."""
        event = given_up.event
        data: dict[str, object] = {
            "target": label,
            "notice": event.id,
            "type": event.type,
            "reason": given_up.reason,
            "tries": given_up.tries,
            "seconds": round(given_up.seconds, 3),
        }
        if given_up.output:
            data["output"] = given_up.output
        self._tell(label, data)

    def left_out(self, label: str, count: int, reason: str) -> None:
        """Notices that are told of as a number only."""
        self._tell(label, {"target": label, "reason": reason, "dropped": count})

    def _tell(self, label: str, data: dict[str, object]) -> None:
        try:
            self._on_failed(data)
        except Exception:  # of one who is told; the next notice must go out
            logger.exception("rankscope could not record a notice that failed")
        if label not in self._unreached:
            self._unreached.add(label)
            self._say(f"a notice did not reach {label}: {data['reason']}")
