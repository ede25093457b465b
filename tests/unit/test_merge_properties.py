"""Folding and the prefix tree against the plainest way to say what they are, on made-up jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diag.merge import TreeNode, fold_others, fold_stacks, prefix_tree
from rankscope.diag.merge.normalise import identity, show_frame
from rankscope.diag.merge.own_frames import is_own_thread
from rankscope.diag.model import ChildSnapshot, Frame, RankSnapshot, StackGroup, ThreadStack
from rankscope.diag.ranks import fold_ranks, unfold_ranks

# Few of them, so that stacks meet: two names of one place, one of ours, the caller of our threads.
PLACES = [
    Frame("step", "train.py", 1),
    Frame("Loop.step", "train.py", 1),
    Frame("step", "/opt/lib/python3.11/site-packages/train.py", 1),
    Frame("read", "train.py", 2),
    Frame("", "", 0),
    Frame("beat", "/x/rankscope/watchdog/probe/beat.py", 3),
    Frame("run", "/usr/lib/python3.11/threading.py", 4),
]
FRAMES = st.sampled_from(PLACES).map(lambda frame: Frame(frame.function, frame.file, frame.line))
STACKS = st.lists(FRAMES, max_size=4).map(tuple)


@st.composite
def jobs(draw: st.DrawFn) -> list[RankSnapshot]:
    """Ranks in any order, some of whose stacks are the same object."""
    stacks = st.sampled_from(draw(st.lists(STACKS, min_size=1, max_size=4))) | STACKS
    ids = st.integers(0, 12)

    def threads() -> tuple[ThreadStack, ...]:
        found = draw(st.lists(st.tuples(ids, stacks), max_size=4))
        return tuple(
            ThreadStack(number, None, frames, is_main=place == 0)
            for place, (number, frames) in enumerate(found)
        )

    ranks = draw(st.lists(st.integers(0, 20), max_size=6, unique=True))
    children = [(ChildSnapshot(1, None, threads()),) if draw(st.booleans()) else () for _ in ranks]
    return [
        RankSnapshot(rank, threads=threads(), children=own) for rank, own in zip(ranks, children, strict=True)
    ]


def folded(threads: Sequence[tuple[int, ThreadStack]]) -> set[StackGroup]:
    """Each stack and who has it."""
    found: dict[tuple[object, ...], list[tuple[int, ThreadStack]]] = {}
    for rank, thread in threads:
        found.setdefault(tuple(map(identity, thread.frames)), []).append((rank, thread))
    return {
        StackGroup(
            len(members),
            tuple(
                f"{rank}:{tid}" for rank, tid in sorted((rank, thread.thread_id) for rank, thread in members)
            ),
            fold_ranks(rank for rank, _ in members),
            max(
                (tuple(map(show_frame, thread.frames)) for _, thread in members),
                key=lambda shown: (sum(map(len, shown)), shown),
            ),
        )
        for members in found.values()
    }


def order(group: StackGroup) -> tuple[int, list[int]]:
    return group.count, [int(part) for part in group.threads[0].split(":")]


def compared(job: Sequence[RankSnapshot]) -> list[tuple[int, ThreadStack]]:
    return [(rank.rank, thread) for rank in job for thread in rank.threads if thread.is_main]


def others(job: Sequence[RankSnapshot]) -> list[tuple[int, ThreadStack]]:
    rest = [(rank.rank, thread) for rank in job for thread in rank.threads if not thread.is_main]
    rest += [(rank.rank, thread) for rank in job for child in rank.children for thread in child.threads]
    return [(rank, thread) for rank, thread in rest if thread.frames and not is_own_thread(thread.frames)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(jobs())
def test_every_thread_is_in_the_group_of_its_stack_and_groups_are_in_order(job: list[RankSnapshot]) -> None:
    for groups, threads in ((fold_stacks(job), compared(job)), (fold_others(job), others(job))):
        assert len(set(groups)) == len(groups)
        assert set(groups) == folded(threads)
        assert sorted(groups, key=order) == [*groups]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(jobs())
def test_a_node_of_the_tree_has_the_ranks_whose_stacks_begin_with_its_path(job: list[RankSnapshot]) -> None:
    groups = [*fold_stacks(job), *fold_others(job)]
    expected: dict[tuple[str, ...], set[int]] = {(): set()}
    for group in groups:
        path = group.stack[::-1]
        for depth in range(len(path) + 1):
            expected.setdefault(path[:depth], set()).update(unfold_ranks(group.ranks))
    assert members_by_path(prefix_tree(groups)) == expected


def members_by_path(root: TreeNode) -> dict[tuple[str, ...], set[int]]:
    found: dict[tuple[str, ...], set[int]] = {}
    todo: list[tuple[tuple[str, ...], TreeNode]] = [((), root)]
    while todo:
        path, node = todo.pop()
        found[path] = node.members()
        todo += [((*path, child.frame), child) for child in node.branches]
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_of_stacks_with_the_same_callers_only_that_with_a_leaf_of_ours_is_ours(first: int) -> None:
    run = PLACES[-1]
    stacks = [(PLACES[-2], run), (PLACES[3], run)]
    rest = (ThreadStack(1, None, stacks[first]), ThreadStack(2, None, stacks[1 - first]))
    (group,) = fold_others([RankSnapshot(0, threads=rest)])
    assert group.stack[0] == "read (train.py:2)"
