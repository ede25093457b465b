"""The stacks of a page and their prefix tree, as much of them as a person looks at. Pure.

A page is to stay below 5 MB whatever 16,384 ranks do: what is left out is counted, and what a culprit shows
is on it whatever else is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rankscope.diag.merge.groups import runs_of
from rankscope.diag.merge.tree import TreeNode, prefix_tree
from rankscope.diag.model import StackGroup
from rankscope.diag.report.html.document import Stack, Stacks, TreeFrame
from rankscope.diag.report.html.shown import Indexed, IndexedSets, shown
from rankscope.diag.report.short_frames import short_frame

MOST_STACKS: Final = 300
MOST_OTHERS: Final = 100
MOST_THREADS: Final = 24
"""Threads that a stack names; all of its ranks are named beside them."""
MOST_FRAMES: Final = 400
"""Frames of one stack, leaf first: a recursion has a thousand equal ones."""
MOST_TREE: Final = 2000
MOST_BRANCHES: Final = 40
"""Frames below one frame that are drawn; more of them are narrower than a finger."""


def stacks_part(
    groups: Sequence[StackGroup],
    *,
    culprits: frozenset[int],
    frames: Indexed,
    sets: IndexedSets,
    most: int = MOST_STACKS,
) -> Stacks:
    """Stacks, culprits first, then as they come: rarest first."""

    def is_culprit(group: StackGroup) -> bool:
        return any(rank in run for run in runs_of(group) or () for rank in culprits)

    ordered = sorted(((is_culprit(group), group) for group in groups), key=lambda one: not one[0])
    left_out = ordered[most:]
    return Stacks(
        groups=tuple(_stack(group, frames, sets, is_culprit=guilty) for guilty, group in ordered[:most]),
        left_out=len(left_out),
        threads_left_out=sum(group.count for _, group in left_out),
    )


def _stack(group: StackGroup, frames: Indexed, sets: IndexedSets, *, is_culprit: bool) -> Stack:
    return Stack(
        count=group.count,
        ranks=sets.of_text(group.ranks),
        threads=tuple(shown(thread, 40) for thread in group.threads[:MOST_THREADS]),
        frames=tuple(frames.of(short_frame(frame)) for frame in group.stack[:MOST_FRAMES]),
        is_culprit=is_culprit,
        frames_left_out=max(0, len(group.stack) - MOST_FRAMES),
    )


def tree_part(
    groups: Iterable[StackGroup], *, culprits: frozenset[int], frames: Indexed, sets: IndexedSets
) -> tuple[TreeFrame, ...]:
    """The prefix tree, depth first; beyond what can be drawn, frames below one frame are drawn as one."""
    readable = [group for group in groups if group.stack and runs_of(group) is not None]
    if not readable:
        return ()
    drawing = _Drawing(culprits, frames, sets)
    drawing.draw(prefix_tree(_cut(readable)))
    return tuple(drawing.drawn)


def _cut(groups: Iterable[StackGroup]) -> Iterable[StackGroup]:
    """Very deep stacks without their leaves: the tree is about where the ranks part."""
    for group in groups:
        deep = len(group.stack) > MOST_FRAMES
        yield StackGroup(group.count, (), group.ranks, group.stack[-MOST_FRAMES:]) if deep else group


def _members(root: TreeNode) -> dict[int, set[int]]:
    """Who has each node, by its identity, each set made once; a chain of calls shares one."""
    ordered: list[TreeNode] = []
    todo = [root]
    while todo:
        node = todo.pop()
        ordered.append(node)
        todo += node.branches
    found: dict[int, set[int]] = {}
    for node in reversed(ordered):
        below = [found[id(child)] for child in node.branches]
        found[id(node)] = (
            below[0] if len(below) == 1 and not node.ending else set().union(*below, *node.ending)
        )
    return found


class _Drawing:
    """Walks the tree without recursion: stacks may be deeper than Python's own."""

    def __init__(self, culprits: frozenset[int], frames: Indexed, sets: IndexedSets) -> None:
        self._culprits = culprits
        self._frames = frames
        self._sets = sets
        self._members: dict[int, set[int]] = {}
        self.drawn: list[TreeFrame] = []

    def draw(self, root: TreeNode) -> None:
        """Draw a tree; its root's ranks are all that were observed."""
        self._members = _members(root)
        everyone = self._members[id(root)]
        todo: list[tuple[TreeNode, int]] = [(root, -1)]
        while todo:
            node, parent = todo.pop()
            index = self._add(node.frame, parent, self._members[id(node)], everyone)
            children = sorted(node.branches, key=self._order)
            room = MOST_BRANCHES if len(self.drawn) + len(todo) < MOST_TREE else 1
            kept, folded = children[:room], children[room:]
            if folded:
                members = set[int]().union(*(self._members[id(child)] for child in folded))
                self._add("", index, members, everyone, folded=len(folded))
            todo += [(child, index) for child in reversed(kept)]

    def _order(self, node: TreeNode) -> tuple[bool, int, str]:
        """Those of the culprits first, so that they are drawn whatever is not; then those of most ranks."""
        members = self._members[id(node)]
        return self._culprits.isdisjoint(members), -len(members), node.frame

    def _add(self, frame: str, parent: int, members: set[int], everyone: set[int], *, folded: int = 0) -> int:
        self.drawn.append(
            TreeFrame(
                frame=-1 if folded or parent < 0 else self._frames.of(short_frame(frame)),
                parent=parent,
                have=self._sets.of(members),
                lack=self._sets.of(everyone - members),
                folded=folded,
                is_culprit=not self._culprits.isdisjoint(members),
            )
        )
        return len(self.drawn) - 1
