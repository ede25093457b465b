"""Tells which ends in a log are only the end of a wait in vain: then what was waited for is the question.

A watchdog aborts its process after a collective ran out of time, debug mode DETAIL raises in ranks that meet
another collective than their own, a store raises when clients do not join. The forms of torch 1.12 to 2.13.
It must not know what became of the other ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from rankscope.diag.read import LogFact

# SIGABRT as Python has it, and as a shell or a container does.
_ABORTED: Final = frozenset({-6, 134})
WATCHDOG: Final = frozenset({"watchdog_timeout", "watchdog_status", "watchdog_stuck"})
"""Kinds of what a rank's watchdog says."""
MISMATCH: Final = "Detected mismatch between collectives"
_ENDS: Final = frozenset({"failure", "root_failure"})
_BY_WATCHDOG: Final = "a watchdog ends its process after a time-out"
# What an exception says, and what it means that a rank ended with it.
_RAISED: Final = {
    "Watchdog caught collective": _BY_WATCHDOG,
    MISMATCH: "an exception about calls that differ",
    "in store based barrier": "an exception about ranks that did not join",
    "clients joined.": "an exception about ranks that did not join",
}


def waited_in_vain(facts: Iterable[LogFact]) -> dict[int, str]:
    """Ranks that ended only because what they waited for did not come.

    Args:
        facts: what log lines say, of all ranks.

    Returns:
        What ended each of them, as a phrase.
    """
    of_rank: dict[int, list[LogFact]] = defaultdict(list)
    for fact in facts:
        if fact.rank is not None:
            of_rank[fact.rank].append(fact)
    found = {rank: _reason(said) for rank, said in of_rank.items()}
    return {rank: reason for rank, reason in found.items() if reason}


def _reason(said: Sequence[LogFact]) -> str:
    """What ended a rank, ``""`` for any other reason than a wait, and where it did not end."""
    ends = [fact.exit for fact in said if fact.kind in _ENDS and fact.exit is not None]
    raised = [fact.text for fact in said if fact.kind == "raised"]
    raised += [end.message for end in ends if end.message and not end.message.startswith("Signal ")]
    if raised:
        reasons = [next((why for words, why in _RAISED.items() if words in text), "") for text in raised]
        return reasons[-1] if all(reasons) else ""
    aborted = bool(ends) and all(end.code in _ABORTED for end in ends)
    return _BY_WATCHDOG if aborted and any(fact.kind in WATCHDOG for fact in said) else ""
