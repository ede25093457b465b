"""Merging and classifying do not depend on order, lose nobody and never raise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.classify_factory import ARank, a_job, a_rank, collective, judge, torch_frame, user

from rankscope.diag.merge import TreeNode, fold_stacks, prefix_tree
from rankscope.diag.model import ExitFacts, Frame, JobSnapshot
from rankscope.diag.ranks import fold_ranks, unfold_ranks

FRAMES = st.sampled_from(
    [
        *collective(),
        user("load_batch", 8),
        user("f.<locals>.g", 9),
        torch_frame("_save", "torch/serialization.py"),
        torch_frame("_engine_run_backward", "torch/autograd/graph.py"),
        torch_frame("init_process_group", "torch/distributed/distributed_c10d.py"),
        Frame("", "", 0),
        Frame("poll", "libc.so.6", 0, "native"),
    ]
)
STACKS = st.lists(FRAMES, max_size=5).map(tuple)


@st.composite
def jobs(draw: st.DrawFn) -> list[ARank]:
    count = draw(st.integers(1, 6))
    ranks: list[ARank] = []
    for rank in range(count):
        made = replace(
            a_rank(rank),
            frames=draw(STACKS),
            state=draw(st.sampled_from([None, "S", "R", "D", "T", "Z"])),
            wchan=draw(st.sampled_from([None, "", "futex_do_wait", "hrtimer_nanosleep"])),
            cpu=draw(st.sampled_from([0.0, 0.05, 1.0])),
            switches=draw(st.sampled_from([0.0, 50.0])),
            step=draw(st.sampled_from([None, 3])),
            beat=draw(st.sampled_from([None, 0.5, 30.0])),
            exit=draw(
                st.sampled_from([None, None, None, ExitFacts(0), ExitFacts(1, "boom"), ExitFacts(None)])
            ),
        )
        for group in draw(st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True)):
            made = made.at(
                draw(st.integers(-1, 3)), completed=draw(st.integers(-1, 3)), group=group, size=count
            )
        ranks.append(made)
    return ranks


@given(st.lists(STACKS.filter(bool), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_folding_ignores_order_and_counts_everyone(stacks: list[tuple[Frame, ...]], order: Random) -> None:
    ranks = [replace(a_rank(rank), frames=stack).build(0.0) for rank, stack in enumerate(stacks)]
    groups = fold_stacks(ranks)
    shuffled = list(ranks)
    order.shuffle(shuffled)
    assert fold_stacks(shuffled) == groups
    assert sum(group.count for group in groups) == len(ranks)
    assert [group.count for group in groups] == sorted(group.count for group in groups)
    assert sorted(rank for group in groups for rank in unfold_ranks(group.ranks)) == list(range(len(ranks)))


@given(st.lists(STACKS.filter(bool), min_size=1, max_size=12))
def test_a_node_s_ranks_and_those_that_lack_it_are_everyone(stacks: list[tuple[Frame, ...]]) -> None:
    ranks = [replace(a_rank(rank), frames=stack).build(0.0) for rank, stack in enumerate(stacks)]
    todo: list[TreeNode] = [prefix_tree(fold_stacks(ranks))]
    while todo:
        node = todo.pop()
        have, lack = set(unfold_ranks(node.ranks)), set(unfold_ranks(node.missing))
        assert have | lack == set(range(len(ranks)))
        assert not have & lack
        assert node.ranks == fold_ranks(have)
        assert all(set(unfold_ranks(child.ranks)) <= have for child in node.children)
        todo.extend(node.children)


@settings(max_examples=200)
@given(jobs(), st.booleans())
def test_any_job_gets_one_consistent_diagnosis(ranks: list[ARank], paired: bool) -> None:
    world = len(ranks) + 1
    before = a_job(*ranks, world_size=world)
    after = a_job(*ranks, seconds=4.0, world_size=world) if paired else None
    found = judge(before, after)
    assert [one.rank for one in found.ranks] == list(range(world))
    assert {one.rank for one in found.ranks if one.role == "culprit"} == set(found.culprits)
    assert set(found.culprits) <= set(range(len(ranks)))
    assert (found.severity == "none") == (found.verdict == "Healthy")
    assert found.summary
    assert judge(reordered(before), reordered(after) if after else None) == found
    if after is None and found.verdict in ("RankNonCommHang", "RankCommHang"):
        assert found.confidence != "high"


def reordered(job: JobSnapshot) -> JobSnapshot:
    return structs.replace(job, ranks=job.ranks[::-1])
