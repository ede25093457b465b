"""Which of the failed workers is the root: the first in time of those whose failure no other explains. Pure.

Kinds of ends, the first that there is counts: a failure of its own; an end of which nothing is known; the
aftermath of another's (a connection that closed, a wait in vain, a watchdog that gives up); one that was
asked for (SIGTERM from outside). Who was stopped by the agent has not failed. Times are intervals: torch
writes whole seconds, two ends a few milliseconds apart are seen in any order, and clocks of nodes differ.
Where intervals overlap it is a tie, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from rankscope.agent.failures.exit_codes import signal_of
from rankscope.agent.failures.identity import error_identity
from rankscope.agent.failures.model import EndWords, Failure
from rankscope.agent.failures.struck import is_by_stop_signal
from rankscope.diag.ranks import fold_ranks

SAME_INSTANT: Final = 0.005
"""Seconds within which two ends of one node are seen in any order (measured: peers end 14-68 ms after)."""
CLOCK_SKEW: Final = 0.5
"""Seconds by which the clocks of two nodes may differ; NTP keeps them closer, a virtual machine may not."""
_SPEAKS_LATE: Final = 2.0
"""Seconds after the first end that another's exception may come and still be its cause: its connections close
only after it was raised, so any later one is a fault of its own."""
_Kind = Literal["own", "unknown", "aftermath", "asked"]


def choose_root(words: Sequence[EndWords]) -> Failure | None:
    """The root failure.

    Args:
        words: the ended workers of all nodes, in any order.

    Returns:
        ``None`` when no worker failed by itself: they ended with 0, or were stopped by the agent.
    """
    ended = sorted(words, key=lambda one: one.rank)
    failed = [one for one in ended if one.exit_code != 0]
    kinds: dict[int, _Kind] = {one.rank: _kind(one) for one in failed}
    candidates = _candidates(failed, kinds)
    if not candidates:
        return None
    first = min(candidates, key=_order)
    tied = tuple(one.rank for one in candidates if one is not first and _may_be_before(one, first))
    why = _why(first, tied, failed, kinds, left=[one.rank for one in ended if one.exit_code == 0])
    return as_failure(
        _best_of(first, [one for one in candidates if one.rank in tied]), tied=tied, why=why, first=first
    )


def other_failures(words: Sequence[EndWords], root: Failure | None) -> tuple[Failure, ...]:
    """The workers that failed of their own beside the root, by rank: no victims, none that was asked to end.

    Args:
        words: the ended workers of all nodes, in any order.
        root: what ``choose_root`` says of them.
    """
    failed = sorted((one for one in words if one.exit_code != 0), key=lambda one: one.rank)
    own = (one for one in failed if _kind(one) == "own")
    return tuple(as_failure(one) for one in own if root is not None and one.rank != root.rank)


def as_failure(
    one: EndWords, *, tied: tuple[int, ...] = (), why: str = "", first: EndWords | None = None
) -> Failure:
    """A failed worker as a failure, also one on its own (Async).

    Args:
        one: the worker.
        tied: ranks that may have been first as well, perhaps this one among them.
        why: why it is the root.
        first: who was seen first, when that was another of them.
    """
    others = {*tied, *((first.rank,) if first is not None else ())} - {one.rank}
    return Failure(
        rank=one.rank,
        local_rank=one.local_rank,
        node=one.node,
        role=one.role,
        exit_code=one.exit_code,
        message=one.message,
        identity=error_identity(one.message, place=_place(one)),
        source=one.source,
        retryable=one.retryable,
        because=one.because,
        at=one.failed_at,
        frame=one.frame,
        tied_with=tuple(sorted(others)),
        why_first=why,
    )


def _kind(one: EndWords) -> _Kind:
    stopped_first = one.stopped_at is not None and not (one.raised and one.failed_at <= one.stopped_at)
    if stopped_first or (is_by_stop_signal(one.exit_code) and not one.raised):
        return "asked"
    if one.exit_code is None and one.source == "exit code":
        return "unknown"
    return "aftermath" if one.is_aftermath else "own"


def _candidates(failed: Sequence[EndWords], kinds: Mapping[int, _Kind]) -> list[EndWords]:
    own = [one for one in failed if kinds[one.rank] == "own"] or [
        one for one in failed if kinds[one.rank] == "unknown"
    ]
    aftermath = [one for one in failed if kinds[one.rank] == "aftermath"]
    if own and aftermath:
        earliest = min(aftermath, key=_order)
        own = [one for one in own if not _came_too_late(one, earliest)]
    # Who was stopped by the agent did not fail; a signal from outside is a failure if there is nothing else.
    outside = [one for one in failed if kinds[one.rank] == "asked" and one.stopped_at is None]
    return own or aftermath or outside


def _came_too_late(own: EndWords, aftermath: EndWords) -> bool:
    """Whether a failure of its own cannot be what another rank's aftermath came from.

    An exit may come long after its cause (threads, exit handlers); an exception or a deadly signal may not.
    """
    is_exact = own.raised or signal_of(own.exit_code) is not None
    return is_exact and own.failed_at > _latest(aftermath) + _SPEAKS_LATE + _slack(own, aftermath)


def _order(one: EndWords) -> tuple[float, int]:
    return _latest(one), one.rank


def _latest(one: EndWords) -> float:
    return one.failed_at + one.uncertainty


def _slack(one: EndWords, other: EndWords) -> float:
    return SAME_INSTANT if one.node == other.node else CLOCK_SKEW


def _may_be_before(one: EndWords, first: EndWords) -> bool:
    return one.failed_at <= _latest(first) + _slack(one, first)


def _best_of(first: EndWords, tied: Sequence[EndWords]) -> EndWords:
    """Of ends that cannot be told apart in time one that says why it ended, and the same one each time."""
    return min((first, *tied), key=lambda one: (not _says_why(one), one.rank))


def _says_why(one: EndWords) -> bool:
    return one.source != "exit code" or signal_of(one.exit_code) is not None


def _why(
    first: EndWords,
    tied: Sequence[int],
    failed: Sequence[EndWords],
    kinds: Mapping[int, _Kind],
    *,
    left: Sequence[int],
) -> str:
    parts: list[str] = []
    together = sorted((first.rank, *tied))
    if tied:
        parts.append(f"ranks {fold_ranks(together)} failed at the same instant, as far as can be told")
    others = [one for one in failed if one.rank not in together]
    for kind, text in _CONSEQUENCES:
        ranks = [one.rank for one in others if kinds[one.rank] == kind and kind != kinds[first.rank]]
        if ranks:
            parts.append(f"{_ranks(ranks)} {text[len(ranks) > 1]}")
    later = [one.rank for one in others if kinds[one.rank] == kinds[first.rank]]
    if later:
        parts.append(f"{_ranks(later)} failed later")
    if kinds[first.rank] == "aftermath":
        own = "no failure that explains it is known"
        gone = f"; {_ranks(left)} had ended with exit code 0" if left else ""
        parts.append(own + gone)
    return "; ".join(parts)


_CONSEQUENCES: Final[tuple[tuple[_Kind, tuple[str, str]], ...]] = (
    ("aftermath", ("lost its connections or waited in vain", "lost their connections or waited in vain")),
    ("asked", ("was asked to end", "were asked to end")),
    ("unknown", ("ended in an unknown way", "ended in an unknown way")),
    ("own", ("failed too late to explain it", "failed too late to explain it")),
)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {fold_ranks(ranks)}"


def _place(one: EndWords) -> str:
    if one.frame is None:
        return ""
    return f"{one.frame.function} ({one.frame.file.rpartition('/')[2]})"
