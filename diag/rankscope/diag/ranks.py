"""Rank sets and how they print: folded, ``0-3,6``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_RANKS: Final = 1 << 20
"""More than any job has: a text that folds more is damaged, and is refused before it is unfolded."""

_RUN: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
_DIGITS: Final = 7
_QUOTED: Final = 40  # characters of a refused text that the error repeats


def fold_ranks(ranks: Iterable[int]) -> str:
    """Fold ranks into ``0-3,6``; an empty set folds to ``""``."""
    parts: list[str] = []
    run: list[int] = []
    for rank in sorted(set(ranks)):
        if run and rank == run[-1] + 1:
            run = [run[0], rank]
            continue
        if run:
            parts.append(_fold_run(run))
        run = [rank]
    if run:
        parts.append(_fold_run(run))
    return ",".join(parts)


def _fold_run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 or run[0] == run[1] else f"{run[0]}-{run[1]}"


def unfold_ranks(text: str) -> tuple[int, ...]:
    """Read what ``fold_ranks`` wrote: ranks in ascending order, no more of them than a job can have.

    Raises:
        ValueError: the text is not a folded rank set; found out before anything is unfolded.
    """
    return tuple(rank for run in rank_runs(text) for rank in run)


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
