"""The states of an agent in an incident, and what leads from one to another: the page's table and picture.

The machine (``protocol``) goes by these rows alone: one that is not here raises in every test of it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

State = Literal["watching", "opening", "looking", "reported", "leading", "judging", "judged", "ruled"]
ANY: Final = "any"


class Transition(NamedTuple):
    """One row.

    Attributes:
        start: ``any`` for every state but ``watching``.
        why: what makes it happen.
        says: what the agent does then, may be empty.
    """

    start: str
    end: State
    why: str
    says: str = ""


SUSPECTS: Final = "its own watch suspects a hang"
IS_OPEN: Final = "the incident is open, by it or by another at the same moment"
ASKED: Final = "another agent has opened an incident"
SEEN: Final = "both looks are posted, or 30 s are over"
LEADS: Final = "group rank 0, or nobody before it leads in time"
COLLECTED: Final = "all looks are there, or 10 s are over"
SLOW: Final = "its verdict takes more than 20 s: another may lead"
KNOWS: Final = "a verdict stands in the store, its own or another's"
RULED: Final = "a ruling stands in the store: a decision, or that nothing hangs"
RETURNS: Final = "back after the ruling"
CLOSED: Final = "acknowledged; its own keys, and as closer all keys, are deleted"
ALONE: Final = "the store has not answered for 10 s"
LEFT: Final = "the membership has changed: the round is void"

TRANSITIONS: Final = (
    Transition("watching", "opening", SUSPECTS),
    Transition("opening", "looking", IS_OPEN, "look a"),
    Transition("watching", "looking", ASKED, "look a"),
    Transition("looking", "reported", SEEN),
    Transition("reported", "leading", LEADS, "collect"),
    Transition("leading", "judging", COLLECTED, "merge, judge"),
    Transition("judging", "reported", SLOW),
    Transition("looking", "judged", KNOWS, "tell"),
    Transition("reported", "judged", KNOWS, "tell"),
    Transition("leading", "judged", KNOWS, "tell"),
    Transition("judging", "judged", KNOWS, "tell"),
    Transition(ANY, "ruled", RULED, "follow"),
    Transition("watching", "ruled", RETURNS, "follow"),
    Transition("ruled", "watching", CLOSED),
    Transition(ANY, "watching", ALONE, "judge own ranks"),
    Transition(ANY, "watching", LEFT),
)
_ROWS: Final = frozenset((row.start, row.end, row.why) for row in TRANSITIONS)


def is_known(start: State, end: State, why: str) -> bool:
    """Whether the table has it."""
    return (start, end, why) in _ROWS or (start != "watching" and (ANY, end, why) in _ROWS)
