"""The prefix tree of the ranks' stacks, root first: where the ranks part, who took which branch.

As LLNL's STAT shows it (Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007): each
node names the ranks that have it and the ranks that lack it. A rank that was not observed is in neither.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from rankscope.diag.model import StackGroup
from rankscope.diag.ranks import fold_ranks, unfold_ranks
from rankscope.diag.unhurried import without_collector


class TreeNode:
    """One frame below its caller; rank sets are put together when asked for, as few nodes are looked at.

    Attributes:
        frame: ``function (file:line)``, ``""`` for the root.
        ending: the ranks of each stack that ends here.
    """

    __slots__ = ("_below", "_root", "ending", "frame")

    def __init__(self, frame: str, root: TreeNode | None = None) -> None:
        self.frame = frame
        self._root = root if root is not None else self
        self._below: dict[str, TreeNode] | None = None  # most nodes are leaves where all ranks differ
        self.ending: tuple[tuple[int, ...], ...] = ()

    @property
    def ranks(self) -> str:
        """Who has it, folded."""
        return fold_ranks(self.members())

    @property
    def missing(self) -> str:
        """Who was observed and lacks it, folded."""
        return fold_ranks(self._root.members() - self.members())

    @property
    def children(self) -> tuple[TreeNode, ...]:
        """What it calls, those of most ranks first."""
        below = self._below.values() if self._below else ()
        return tuple(sorted(below, key=lambda node: (-len(node.members()), node.frame)))

    @property
    def branches(self) -> tuple[TreeNode, ...]:
        """What it calls, in the order in which it was seen: who has what is not looked at."""
        return tuple(self._below.values()) if self._below else ()

    def members(self) -> set[int]:
        """Who has it."""
        found: set[int] = set()
        todo: list[TreeNode] = [self]
        while todo:
            node = todo.pop()
            found.update(*node.ending)
            if node._below:  # noqa: SLF001 - of the same class
                todo.extend(node._below.values())  # noqa: SLF001 - of the same class
        return found

    def below(self, frames: Iterable[str]) -> TreeNode:
        """The node that a path of calls leads to, made where there is none."""
        node = self
        for frame in frames:
            node = node.call(frame)
        return node

    def call(self, frame: str) -> TreeNode:
        """The node of one frame that it calls, made where there is none."""
        if self._below is None:
            self._below = {}
        below = self._below.get(frame)
        if below is None:
            below = self._below[frame] = TreeNode(frame, self._root)
        return below


@without_collector()
def prefix_tree(groups: Iterable[StackGroup]) -> TreeNode:
    """Build the tree of folded stacks: a stack costs its depth once, however many ranks share it.

    Of stacks that differ in the leaf alone, what they share is walked once; equal sets are read once.
    """
    root = TreeNode("")
    unfolded = functools.cache(unfold_ranks)
    callers: dict[tuple[str, ...], TreeNode] = {}
    for group in groups:
        shared = group.stack[1:]
        node = callers.get(shared)
        if node is None:
            node = callers[shared] = root.below(reversed(shared))
        if group.stack:
            node = node.call(group.stack[0])
        node.ending += (unfolded(group.ranks),)
    return root
