"""Rows about the prefix tree (NUMBERS.md): 16,384 ranks x 8 threads x 25 frames, from parsed stacks.

Ours folds equal stacks first and builds the tree of what is left. The peer is a plain trie of dicts: every
frame of every stack is looked up, and the rank put into that node's set. Once most ranks show the same
stacks, as in a real hang (the reader shares those), and once every rank's stacks differ in their leaf.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.row import Row
from rankscope.diag.merge.groups import fold_others, fold_stacks
from rankscope.diag.merge.tree import prefix_tree
from rankscope.diag.model import Frame, RankSnapshot, ThreadStack

RANKS: Final = 16_384
THREADS: Final = 8
DEPTH: Final = 25
_VARIANTS: Final = 3
_ROUNDS: Final = 3
_ENOUGH: Final = 10.0
"""Seconds after which no further round is begun: the whole table has a budget."""


class _Node:
    """A node of the peer's trie."""

    __slots__ = ("children", "ranks")

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.children: dict[tuple[str, str, int], _Node] = {}


def rows() -> list[Row]:
    """Measure: about 10 s, more when ours is slow."""
    shared = [[_stack(thread, leaf=variant) for variant in range(_VARIANTS)] for thread in range(THREADS)]
    same = [_rank(rank, [stacks[rank % _VARIANTS] for stacks in shared]) for rank in range(RANKS)]
    first = _row("prefix tree, 16,384 ranks x 8 threads x 25 frames", same, bar=10)
    del same
    differing = [
        _rank(rank, [_other_leaf(stacks[0], line=rank) for stacks in shared]) for rank in range(RANKS)
    ]
    return [first, _row("the same, every rank's stacks differ", differing, bar=2)]


def _row(name: str, ranks: Sequence[RankSnapshot], *, bar: int) -> Row:
    gc.collect()
    gc.freeze()  # the input is not what the collector should go through, on either side
    begin = time.perf_counter()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < _ROUNDS and (not pairs or time.perf_counter() - begin < _ENOUGH):
        pairs.append((_seconds(lambda: _ours(ranks)), _seconds(lambda: _trie(ranks))))
    gc.unfreeze()
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        name,
        f"{ours:.2f} s",
        f"{peer:.2f} s, a plain dict trie",
        peer / ours,
        f">= {bar}x faster",
        peer >= bar * ours,
    )


def _ours(ranks: Sequence[RankSnapshot]) -> None:
    prefix_tree([*fold_stacks(ranks), *fold_others(ranks)])


def _trie(ranks: Sequence[RankSnapshot]) -> None:
    root = _Node()
    for rank in ranks:
        for thread in rank.threads:
            node = root
            node.ranks.add(rank.rank)
            for frame in reversed(thread.frames):
                key = (frame.function, frame.file, frame.line)
                below = node.children.get(key)
                if below is None:
                    below = node.children[key] = _Node()
                below.ranks.add(rank.rank)
                node = below


def _seconds(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _rank(rank: int, stacks: Sequence[tuple[Frame, ...]]) -> RankSnapshot:
    threads = (
        ThreadStack(rank * THREADS + number, None, frames, is_main=number == 0)
        for number, frames in enumerate(stacks)
    )
    return RankSnapshot(rank, threads=tuple(threads))


def _stack(thread: int, *, leaf: int) -> tuple[Frame, ...]:
    """Leaf first; the variants part at the leaf, the threads below the third call."""
    calls = (_frame(depth, thread if depth >= 3 else 0) for depth in range(DEPTH - 1))
    return (_frame(DEPTH, leaf), *reversed(tuple(calls)))


def _frame(depth: int, variant: int) -> Frame:
    return Frame(f"call_{depth}_{variant}", f"/srv/train/layer_{depth}.py", 10 + depth)


def _other_leaf(stack: tuple[Frame, ...], *, line: int) -> tuple[Frame, ...]:
    return (Frame("leaf", "/srv/train/leaf.py", line + 1), *stack[1:])
