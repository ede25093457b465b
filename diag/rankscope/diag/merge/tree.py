"""The prefix tree of the ranks' stacks, root first: where the ranks part, who took which branch.

As LLNL's STAT shows it (Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007): each
node names the ranks that have it and the ranks that lack it. A rank that was not observed is in neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankscope.diag.model import StackGroup
from rankscope.diag.ranks import unfold_ranks


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One frame below its caller.

    Attributes:
        frame: ``function (file:line)``, ``""`` for the root.
        ranks: who has it, folded.
        missing: who was observed and lacks it, folded.
        children: what it calls, those of most ranks first.
    """

    frame: str
    ranks: str
    missing: str
    children: tuple[TreeNode, ...] = ()


class _Branch:
    """A node while the tree grows; ``mask`` has bit r set for rank r."""

    __slots__ = ("children", "mask")

    def __init__(self) -> None:
        self.mask = 0
        self.children: dict[str, _Branch] = {}


def prefix_tree(groups: Iterable[StackGroup]) -> TreeNode:
    """Build the tree of folded stacks: a stack costs its depth once, however many ranks share it."""
    root = _Branch()
    for group in groups:
        mask = _mask(unfold_ranks(group.ranks))
        root.mask |= mask
        branch = root
        for frame in reversed(group.stack):
            below = branch.children.get(frame)
            if below is None:
                below = branch.children[frame] = _Branch()
            below.mask |= mask
            branch = below
    return _freeze(root, everyone=root.mask)


def _freeze(root: _Branch, *, everyone: int) -> TreeNode:
    """Turn branches into nodes, leaves first, without recursion: a stack may be a thousand deep."""
    order: list[tuple[str, _Branch]] = [("", root)]
    for _, branch in order:
        order.extend(branch.children.items())
    folded: dict[int, str] = {}
    done: dict[int, TreeNode] = {}
    for frame, branch in reversed(order):
        children = sorted(branch.children.items(), key=lambda item: (-item[1].mask.bit_count(), item[0]))
        done[id(branch)] = TreeNode(
            frame=frame,
            ranks=_fold(branch.mask, folded),
            missing=_fold(everyone & ~branch.mask, folded),
            children=tuple(done.pop(id(child)) for _, child in children),
        )
    return done[id(root)]


def _mask(ranks: tuple[int, ...]) -> int:
    if not ranks:
        return 0
    bits = bytearray(ranks[-1] // 8 + 1)
    for rank in ranks:
        bits[rank >> 3] |= 1 << (rank & 7)
    return int.from_bytes(bits, "little")


def _fold(mask: int, folded: dict[int, str]) -> str:
    known = folded.get(mask)
    if known is None:
        known = folded[mask] = ",".join(_runs(mask))
    return known


def _runs(mask: int) -> Iterable[str]:
    """Runs of set bits as ``fold_ranks`` writes them; a run costs two searches."""
    bits = bin(mask)[:1:-1]
    at = bits.find("1")
    while at >= 0:
        end = bits.find("0", at)
        end = len(bits) if end < 0 else end
        yield str(at) if end == at + 1 else f"{at}-{end - 1}"
        at = bits.find("1", end)
