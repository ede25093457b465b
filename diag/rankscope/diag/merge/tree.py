"""The prefix tree of the ranks' stacks, root first: where the ranks part, who took which branch.

As LLNL's STAT shows it (Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007): each
node names the ranks that have it and the ranks that lack it. A rank that was not observed is in neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.diag.model import StackGroup
from rankscope.diag.ranks import fold_ranks, unfold_ranks


class TreeNode:
    """One frame below its caller; rank sets are put together when asked for, as few nodes are looked at.

    Attributes:
        frame: ``function (file:line)``, ``""`` for the root.
    """

    __slots__ = ("_below", "_root", "_stacks", "frame")

    def __init__(self, frame: str, root: TreeNode | None = None) -> None:
        self.frame = frame
        self._root = root if root is not None else self
        self._below: dict[str, TreeNode] = {}
        self._stacks: list[tuple[int, ...]] = []

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
        return tuple(sorted(self._below.values(), key=lambda node: (-len(node.members()), node.frame)))

    def members(self) -> set[int]:
        """Who has it."""
        return set().union(*self._stacks)

    def add(self, ranks: tuple[int, ...], frames: Iterable[str]) -> None:
        """Add a stack, root first."""
        node = self
        node._stacks.append(ranks)
        for frame in frames:
            below = node._below.get(frame)
            if below is None:
                below = node._below[frame] = TreeNode(frame, self)
            below._stacks.append(ranks)
            node = below


def prefix_tree(groups: Iterable[StackGroup]) -> TreeNode:
    """Build the tree of folded stacks: a stack costs its depth once, however many ranks share it."""
    root = TreeNode("")
    for group in groups:
        root.add(unfold_ranks(group.ranks), reversed(group.stack))
    return root
