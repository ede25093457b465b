"""Rank sets and how they print: folded, ``0-3,6``."""

from __future__ import annotations

from collections.abc import Iterable


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
    """Read what ``fold_ranks`` wrote.

    Raises:
        ValueError: the text is not a folded rank set.
    """
    ranks: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(ranks))
