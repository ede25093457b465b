"""Which workers ended of the very signal that stops the agent, and which of a fault of their own. Pure.

A scheduler signals every process of a job, and often the workers first. An end that came with the signal
says nothing of how the job was doing: taken for a cause it would hide the hang that the job was stopped for.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from rankscope.diag.model import ExitFacts, JobSnapshot, RankSnapshot

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_BY_SHELL: Final = 128
"""What a shell, and programs like one, add to a signal's number for their exit code."""
_SIGNALLED_BEFORE: Final = 5.0
"""Seconds before the agent's own signal in which an end by such a signal belongs to it."""
_ENDED_BEFORE: Final = 0.5
"""Seconds before it in which an end with any exit code does: a worker may take the signal and exit with 1."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How ranks ended.

    Attributes:
        causes: those that ended by themselves.
        struck: those that ended of what stops the agent.
    """

    causes: dict[int, ExitFacts]
    struck: dict[int, ExitFacts]

    def without_struck(self, look: JobSnapshot) -> JobSnapshot:
        """The look with its struck ranks as ranks that could not be seen any more."""
        ranks = (
            _unseen(rank, self.struck[rank.rank]) if rank.rank in self.struck else rank for rank in look.ranks
        )
        return replace(look, ranks=tuple(ranks))


def is_by_stop_signal(code: int | None) -> bool:
    """Whether a process with this exit code may have been asked to end."""
    return code is not None and any(code in (-number, _BY_SHELL + number) for number in STOP_SIGNALS)


def split_ends(ends: Mapping[int, ExitFacts], *, signalled_ago: float | None) -> Ends:
    """Tell ends of the agent's own signal from those that came before.

    Args:
        ends: ranks that have ended, and how.
        signalled_ago: seconds since the agent was asked to end, ``None`` when it was not.
    """
    struck = {rank: end for rank, end in ends.items() if _is_struck(end, signalled_ago)}
    return Ends({rank: end for rank, end in ends.items() if rank not in struck}, struck)


def how_it_ended(code: int | None) -> str:
    """In words, ``by SIGTERM`` or ``with exit code 1``."""
    if code is None:
        return "in an unknown way"
    if is_by_stop_signal(code):
        return f"by {signal.Signals(-code if code < 0 else code - _BY_SHELL).name}"
    return f"with exit code {code}"


def _is_struck(end: ExitFacts, signalled_ago: float | None) -> bool:
    if signalled_ago is None:
        return False
    before = (end.seconds_ago or 0.0) - signalled_ago
    if is_by_stop_signal(end.code):
        return before <= _SIGNALLED_BEFORE
    # Any other signal (SIGKILL for want of memory, SIGSEGV) is a fault, whenever it comes.
    return (end.code is None or end.code >= 0) and before <= _ENDED_BEFORE


def _unseen(rank: RankSnapshot, end: ExitFacts) -> RankSnapshot:
    reason = f"it had ended {how_it_ended(end.code)} already, when the whole job was stopped"
    return replace(
        rank, observed=False, reason=reason, source=None, threads=(), children=(), facts=None, exit=None
    )
