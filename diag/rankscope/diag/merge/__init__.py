"""Merging: identical stacks folded over all ranks, and the prefix tree of who is where. Pure."""

from __future__ import annotations

from rankscope.diag.merge.groups import fold_others, fold_stacks, split_stacks
from rankscope.diag.merge.tree import TreeNode, prefix_tree

__all__ = ["TreeNode", "fold_others", "fold_stacks", "prefix_tree", "split_stacks"]
