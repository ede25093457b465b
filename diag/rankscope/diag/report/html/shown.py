"""Texts and rank sets as a page shows them: inert, short enough to read, written once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rankscope.diag.ranks import fold_ranks, rank_runs
from rankscope.diag.report.html.document import RankSet
from rankscope.diag.report.text import inert

LONGEST_TEXT: Final = 2000
"""Characters of one text on the page; a C++ symbol has a few hundred."""
LONGEST_SET: Final = 300
"""Characters of one set of ranks: every third of 16,384 ranks would take 32,000, in some hundred places."""


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text without control, format or bidirectional characters, and cut."""
    more = len(text) - longest
    return inert(text) if more <= 0 else f"{inert(text[:longest])} ... ({more} characters more)"


def rank_set(ranks: Iterable[int]) -> RankSet:
    """A set of ranks."""
    members = ranks if isinstance(ranks, set | frozenset) else set(ranks)
    return _cut(fold_ranks(members), len(members))


def _cut(text: str, count: int) -> RankSet:
    if len(text) <= LONGEST_SET:
        return RankSet(text, count)
    return RankSet(text[: text.rindex(",", 0, LONGEST_SET)], count, is_cut=True)


class Indexed:
    """Values, each once, with the index of each."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def of(self, text: str) -> int:
        """The index of a text, shown."""
        return self._index.setdefault(shown(text), len(self._index))

    @property
    def values(self) -> tuple[str, ...]:
        """All of them, in the order of their index."""
        return tuple(self._index)


class IndexedSets:
    """Sets of ranks, each once, with the index of each."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, int], int] = {}
        self._sets: list[RankSet] = []

    def of(self, ranks: Iterable[int]) -> int:
        """The index of a set."""
        members = ranks if isinstance(ranks, set | frozenset) else set(ranks)
        return self._of(fold_ranks(members), len(members))

    def of_text(self, folded: str) -> int:
        """The index of a folded set; a text that is no set of ranks is shown as it is, and counts none."""
        try:
            return self._of(folded, sum(map(len, rank_runs(folded))))
        except ValueError:
            return self._of(shown(folded, LONGEST_SET), 0)

    def _of(self, folded: str, count: int) -> int:
        index = self._index.setdefault((folded, count), len(self._sets))
        if index == len(self._sets):
            self._sets.append(_cut(folded, count) if count else RankSet(folded, 0))
        return index

    @property
    def values(self) -> tuple[RankSet, ...]:
        """All of them, in the order of their index."""
        return tuple(self._sets)
