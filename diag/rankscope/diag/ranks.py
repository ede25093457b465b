"""Rank sets and how they print: folded, ``0-3,6``."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Final

MAX_RANKS: Final = 1 << 20
"""More than any job has: a text that folds more is damaged, and is refused before it is unfolded."""

_RUN: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
_SINGLES: Final = re.compile(r"[0-9]{1,7}(?:,[0-9]{1,7})*")
_DIGITS: Final = 7
_QUOTED: Final = 40  # characters of a refused text that the error repeats


def fold_ranks(ranks: Iterable[int]) -> str:
    """Fold ranks into ``0-3,6``; an empty set folds to ``""``."""
    ordered = sorted(set(ranks))
    if not ordered:
        return ""
    first = last = ordered[0]
    if ordered[-1] - first == len(ordered) - 1:
        return _fold_run(first, ordered[-1])
    if 1 not in map(operator.sub, ordered[1:], ordered):
        return ",".join(map(str, ordered))
    parts: list[str] = []
    for rank in ordered[1:]:
        if rank != last + 1:
            parts.append(_fold_run(first, last))
            first = rank
        last = rank
    parts.append(_fold_run(first, last))
    return ",".join(parts)


def _fold_run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def unfold_ranks(text: str) -> tuple[int, ...]:
    """Read what ``fold_ranks`` wrote: ranks in ascending order, no more of them than a job can have.

    Raises:
        ValueError: the text is not a folded rank set; found out before anything is unfolded.
    """
    if len(text) < _DIGITS and text.isdigit() and text.isascii():
        rank = int(text)  # most sets have one rank
        if rank < MAX_RANKS:
            return (rank,)
    if len(text) >= _DIGITS and _SINGLES.fullmatch(text):
        singles = tuple(map(int, text.split(",")))  # every third of the ranks
        if singles[-1] < MAX_RANKS and all(map(operator.lt, singles, singles[1:])):
            return singles
    return tuple([rank for run in rank_runs(text) for rank in run])


def rank_runs(text: str) -> tuple[range, ...]:
    """The runs of a folded set, which cost no more than the text is long.

    Raises:
        ValueError: the text is not a folded rank set.
    """
    runs: list[range] = []
    for part in text.split(",") if text else ():
        if len(part) <= _DIGITS and part.isdigit() and part.isascii():
            first = last = int(part)  # most parts of a set that is no run
        else:
            match = _RUN.fullmatch(part)
            if match is None:
                raise ValueError(f"not a set of ranks: {text[:_QUOTED]!r}")
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
        if last < first or last >= MAX_RANKS or (runs and first < runs[-1].stop):
            raise ValueError(f"not a set of ranks in order below {MAX_RANKS}: {text[:_QUOTED]!r}")
        runs.append(range(first, last + 1))
    return tuple(runs)
