"""Looks of several nodes: packed, unpacked, merged into one job, and what the rules make of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.classify_factory import ARank, a_job, a_rank, judge, user
from tests.rules_factory import loading, waiting

from rankscope.agent.nodes.clock_offsets import Offset, clocks_within
from rankscope.agent.nodes.events import Missing
from rankscope.agent.nodes.folding import Known, fold_look, unfold
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.limits import CHUNK_BYTES, NODE_BYTES
from rankscope.agent.nodes.merging import Merge, clock_evidence
from rankscope.agent.nodes.messages import Member
from rankscope.agent.nodes.verdicts import MOST_BYTES, read_verdict, write_verdict
from rankscope.diag.model import (
    Collective,
    Diagnosis,
    ExitFacts,
    FlightRecord,
    Frame,
    FrameVariables,
    JobSnapshot,
    RankSnapshot,
    RecordedGroup,
    ThreadStack,
)

NODES, LOCAL = 3, 2
WORLD = NODES * LOCAL
SILENT = "its agent did not answer within 15 s"


def member(node: int) -> Member:
    return Member(node, NODES, f"node{node}", tuple(range(node * LOCAL, (node + 1) * LOCAL)))


def of_node(job: JobSnapshot, node: int, *, time: float | None = None) -> JobSnapshot:
    """What the agent of a node sees of a job."""
    ranks = tuple(replace(rank, node=f"node{node}") for rank in job.ranks if rank.rank // LOCAL == node)
    return replace(job, ranks=ranks, time=job.time if time is None else time, world_size=WORLD)


def merged(
    looks: dict[tuple[Which, int], JobSnapshot],
    *,
    missing: tuple[Missing, ...] = (),
    offsets: dict[int, Offset | None] | None = None,
) -> tuple[JobSnapshot, JobSnapshot]:
    merge = Merge("run-7", WORLD)
    for (which, rank), look in looks.items():
        merge.keep(which, rank, fold_look(look, NODE_BYTES))
    members = {one.rank: member(one.rank) for one in missing}
    a, b = (
        merge.job_look(which, missing=missing, members=members, offsets=offsets or {}) for which in ("a", "b")
    )
    return a, b


def diagnosed(*ranks: ARank, silent_nodes: tuple[int, ...] = (), only_b: tuple[int, ...] = ()) -> Diagnosis:
    """The verdict of the whole job from what its nodes have posted."""
    ranks = tuple(rank if rank.step is not None else rank.but(step=5) for rank in ranks)
    before = a_job(*ranks, world_size=WORLD)
    after = a_job(*ranks, seconds=4.0, world_size=WORLD)
    looks: dict[tuple[Which, int], JobSnapshot] = {}
    missing: list[Missing] = []
    for node in range(NODES):
        for which, job in (("a", before), ("b", after)):
            name: Which = "a" if which == "a" else "b"
            if node in silent_nodes or (node in only_b and which == "b"):
                missing.append(Missing(name, node, SILENT))
            else:
                looks[name, node] = of_node(job, node)
    a, b = merged(looks, missing=tuple(missing))
    return judge(a, b, silent=12.0)


def a_full_rank(number: int) -> RankSnapshot:
    """A rank with all that a snapshot can have."""
    frames = (user("step", 10 + number % 3), Frame("main", "/w/t.py", 3))
    entries = tuple(
        Collective("0", seq, "all_reduce", is_completed=seq < 20, created_ns=10**18 + seq, frames=frames)
        for seq in range(21)
    )
    record = FlightRecord((RecordedGroup("0", members=(0, 1), enqueued=20),), entries, is_whole=True)
    variables = (FrameVariables(0, (("src", "3"),)),)
    one = a_rank(number).waiting_in(seq=20).build(1.0)
    other = ThreadStack(9, "loader", frames, variables=variables, holds_gil=True)
    return replace(one, threads=(*one.threads, other), record=record)


def test_a_look_comes_back_as_it_went() -> None:
    look = JobSnapshot("run-7", 5.0, WORLD, tuple(a_full_rank(number) for number in range(LOCAL)))
    assert unfold(fold_look(look, NODE_BYTES), Known()) == (look,)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_any_look_comes_back_as_it_went(seed: int, count: int) -> None:
    draw = random.Random(seed)
    ranks = tuple(a_full_rank(draw.randrange(100) * 10 + number) for number in range(count))
    ranks = tuple(one if draw.random() < 0.7 else replace(one, threads=(), record=None) for one in ranks)
    look = JobSnapshot("run-7", draw.random(), WORLD, ranks)
    assert unfold(fold_look(look, NODE_BYTES), Known()) == (look,)


def test_equal_stacks_of_all_nodes_are_one_object() -> None:
    known = Known()
    looks = [JobSnapshot("run-7", 5.0, WORLD, (a_full_rank(3 * number),)) for number in range(4)]
    unpacked = [unfold(fold_look(look, NODE_BYTES), known) for look in looks]
    first, *others = [read[0].ranks[0].threads for read in unpacked]
    assert len(others) == 3
    assert all(mine.frames is its.frames for other in others for mine, its in zip(first, other, strict=True))


def test_what_a_second_look_has_in_common_with_the_first_is_one_object() -> None:
    known = Known()
    rank = a_full_rank(0)
    looks = [
        JobSnapshot("run-7", time, WORLD, (replace(rank, time=time, facts=a_rank(0).build(time).facts),))
        for time in (5.0, 9.0)
    ]
    (first,), (second,) = (unfold(fold_look(look, NODE_BYTES), known) for look in looks)
    assert [first, second] == looks
    assert second.ranks[0].threads is first.ranks[0].threads
    assert second.ranks[0].record is first.ranks[0].record


@pytest.mark.parametrize("number", [0, 1])
def test_a_second_look_that_differs_in_stacks_alone_shows_them(number: int) -> None:
    """The numbers of stacks are of one look: the same number may stand for another stack in the next."""
    known = Known()
    rank = a_full_rank(0)
    moved = (Frame("elsewhere", "train.py", 7), *rank.threads[number].frames)
    threads = tuple(
        replace(thread, frames=moved) if place == number else thread
        for place, thread in enumerate(rank.threads)
    )
    looks = [JobSnapshot("run-7", 5.0, WORLD, (one,)) for one in (rank, replace(rank, threads=threads))]
    assert [unfold(fold_look(look, NODE_BYTES), known) for look in looks] == [(look,) for look in looks]


@pytest.mark.parametrize("data", [b"", b"x" * 100, fold_look(a_job(), NODE_BYTES)[0][:-3]])
def test_a_damaged_look_is_none(data: bytes) -> None:
    assert unfold((data,), Known()) == ()


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd_to_unpack(data: bytes) -> None:
    whole = fold_look(JobSnapshot("j", 0.0, 2, (a_full_rank(1),)), NODE_BYTES)[0]
    place = len(whole) // 2
    for parts in ((data,), (whole[:place], data), (whole[:place] + data + whole[place + len(data) :],)):
        unfold(parts, Known())


def test_looks_in_quick_succession_travel_with_the_first() -> None:
    draw = random.Random(3)
    look, *between = (
        JobSnapshot("run-7", 5.0 + at, WORLD, tuple(a_full_rank(draw.randrange(3)) for _ in range(LOCAL)))
        for at in range(4)
    )
    assert unfold(fold_look(look, NODE_BYTES, between=between), Known()) == (look, *between)
    packed = sum(map(len, fold_look(look, NODE_BYTES)))
    (alone,) = unfold(fold_look(look, packed + 50, between=between), Known())
    assert all("looks in quick succession" in str(rank.reason) for rank in alone.ranks)


def test_of_a_large_job_they_show_main_threads() -> None:
    looks = [JobSnapshot("run-7", 5.0 + at, 16_000, (a_full_rank(0),)) for at in range(3)]
    _, *between = unfold(fold_look(looks[0], NODE_BYTES, between=looks[1:]), Known())
    assert len(between) == 2
    assert all(thread.is_main or thread.holds_gil for one in between for thread in one.ranks[0].threads)


def test_what_does_not_fit_goes_in_order_and_is_said() -> None:
    look = JobSnapshot("run-7", 5.0, WORLD, tuple(_noisy(number) for number in range(LOCAL)))
    sizes: list[int] = []
    for most in (NODE_BYTES, 40_000, 12_000, 6_000, 200):
        parts = fold_look(look, most)
        sizes.append(sum(map(len, parts)))
        (back,) = unfold(parts, Known())
        assert [one.rank for one in back.ranks] == [0, 1]
        if most != NODE_BYTES:
            assert "left out" in (back.ranks[0].reason or "") or "does not fit" in (
                back.ranks[0].reason or ""
            )
    assert sizes == sorted(sizes, reverse=True)
    assert not back.ranks[0].observed


def _noisy(number: int) -> RankSnapshot:
    draw = random.Random(number)
    rank = a_full_rank(number)
    values = tuple((f"v{index}", draw.randbytes(300).hex()) for index in range(200))
    threads = tuple(
        replace(
            rank.threads[1],
            thread_id=index,
            holds_gil=None,
            frames=(Frame(draw.randbytes(200).hex(), "f"),),
            variables=(FrameVariables(0, values if index == 0 else ()),),
        )
        for index in range(40)
    )
    return replace(rank, threads=(rank.threads[0], *threads))


def test_a_large_look_has_parts_of_bounded_size() -> None:
    values = tuple((f"v{n}", random.Random(n).randbytes(4000).hex()) for n in range(600))
    rank = a_full_rank(0)
    big = replace(rank.threads[1], variables=(FrameVariables(0, values),))
    look = JobSnapshot("run-7", 5.0, WORLD, (replace(rank, threads=(rank.threads[0], big)),))
    parts = fold_look(look, NODE_BYTES)
    assert len(parts) > 1
    assert max(map(len, parts)) <= CHUNK_BYTES
    assert unfold(parts, Known()) == (look,)


def test_in_a_large_job_a_record_keeps_what_is_open_and_the_newest() -> None:
    look = JobSnapshot("run-7", 5.0, 16_000, (a_full_rank(0),))
    (back,) = unfold(fold_look(look, NODE_BYTES), Known())
    record = back.ranks[0].record
    assert record is not None
    assert [one.seq for one in record.entries] == list(range(12, 21))
    assert not record.is_whole
    assert record.entries[0].frames


# ---- the verdict of the whole job ----


@pytest.mark.parametrize("culprit", range(WORLD))
def test_the_culprit_is_found_on_whichever_node_it_is(culprit: int) -> None:
    others = [rank for rank in range(WORLD) if rank != culprit]
    found = diagnosed(*waiting(*others, seq=7), loading(culprit).at(6))
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (culprit,))
    assert found.nodes == (f"node{culprit // LOCAL}",)
    assert found.confidence == "high"


def test_a_node_that_did_not_answer_is_named_with_the_reason() -> None:
    found = diagnosed(*waiting(0, 1, 4, 5, seq=7), silent_nodes=(1,))
    assert [(one.rank, one.reason) for one in found.unobserved] == [
        (rank, f"could not observe node node1, because {SILENT}") for rank in (2, 3)
    ]
    assert "ranks 2-3 could not be observed" in found.summary
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_a_rank_that_works_on_another_node_is_not_called_hung() -> None:
    """Its own watch gives it 30 s and more; the watches of nodes that wait for it know of none that works."""
    found = diagnosed(
        *waiting(1, 2, 3, 4, 5, seq=7), a_rank(0).stuck_in(user("evaluate", 36)).at(6).but(cpu=0.9)
    )
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "rank 0 has been computing in evaluate" in found.summary


def test_a_silent_node_does_not_hide_the_culprit_of_another() -> None:
    found = diagnosed(*waiting(1, 4, 5, seq=7), loading(0).at(6), silent_nodes=(1,))
    assert found.culprits == (0,)
    assert found.confidence == "medium"


def test_an_exit_on_one_node_is_the_verdict_of_all() -> None:
    dead = a_rank(3).but(state=None, exit=ExitFacts(-9, seconds_ago=5.0), reason="it has ended")
    found = diagnosed(*waiting(0, 1, 2, 4, 5, seq=7), dead)
    assert (found.verdict, found.culprits, found.nodes) == ("Exited", (3,), ("node1",))


def test_the_first_to_end_is_the_first_by_aligned_clocks() -> None:
    """Node 1 looked 3 s before node 0, by a clock that is an hour off."""
    first = a_rank(2).but(state=None, exit=ExitFacts(1, "boom", seconds_ago=2.0), reason="it has ended")
    later = a_rank(0).but(state=None, exit=ExitFacts(1, "bang", seconds_ago=3.0), reason="it has ended")
    job = a_job(later, a_rank(1).waiting_in(), first, a_rank(3).waiting_in(), world_size=WORLD)
    looks: dict[tuple[Which, int], JobSnapshot] = {}
    looks["a", 0], looks["a", 1] = of_node(job, 0), of_node(job, 1, time=job.time - 3600.0 - 3.0)
    a, _ = merged(looks, offsets={0: Offset(0.0, 0.0), 1: Offset(3600.0, 0.05)})
    ends = {rank.rank: rank.exit.seconds_ago for rank in a.ranks if rank.exit is not None}
    assert ends == {0: 3.0, 2: 5.0}
    found = judge(a)
    assert found.culprits == (2,)


def test_times_of_records_are_aligned_too() -> None:
    look = JobSnapshot("run-7", 5.0, WORLD, (a_full_rank(0),))
    a, _ = merged({("a", 0): look}, offsets={0: Offset(1.5, 0.1)})
    record, before = a.ranks[0].record, look.ranks[0].record
    assert record is not None
    assert before is not None
    assert record.entries[0].created_ns - before.entries[0].created_ns == 1_500_000_000
    assert record.entries[0].completed_ns == 0  # not known stays not known


def test_clocks_that_are_apart_are_told() -> None:
    names = {1: "node1", 2: "node2", 3: "node3"}
    told = clock_evidence(names, {1: Offset(-5.0, 0.05), 2: None, 3: Offset(0.05, 0.1)})
    assert [one.fact for one in told] == [
        "the clock of node node1 is +5.000 s off the leader's, within 0.050 s; its times are corrected",
        "the clock of node node2 could not be compared with the leader's",
    ]


def test_how_far_corrected_clocks_may_be_apart() -> None:
    assert clocks_within(()) == 0.0
    assert clocks_within((Offset(3.0, 0.25), Offset(-1.0, 0.5), Offset(0.0, 0.125))) == 0.75
    assert clocks_within((Offset(3.0, 0.25), None)) is None


def test_looks_in_quick_succession_are_put_side_by_side() -> None:
    """Those of a node that was too busy for all are fewer; times are the leader's."""
    job = a_job(*(a_rank(rank).waiting_in() for rank in range(4)), world_size=WORLD)
    merge = Merge("run-7", WORLD)
    for node, count in ((0, 3), (1, 2)):
        look, *between = (of_node(job, node, time=100.0 + at) for at in range(count + 1))
        merge.keep("a", node, fold_look(look, NODE_BYTES, between=between))
    seen = merge.between({1: Offset(0.5, 0.01)})
    assert [(one.time, [rank.rank for rank in one.ranks]) for one in seen] == [
        (101.5, [0, 1, 2, 3]),
        (102.5, [0, 1, 2, 3]),
        (103.0, [0, 1]),
    ]


# ---- the verdict as it travels ----


def test_a_small_verdict_travels_whole() -> None:
    found = diagnosed(*waiting(0, 1, 2, 3, 4, seq=7), loading(5).at(6))
    assert read_verdict(write_verdict(found)) == found


def test_a_large_verdict_loses_stacks_then_ranks_then_evidence() -> None:
    found = diagnosed(*waiting(0, 1, 2, 3, 4, seq=7), loading(5).at(6))
    many = replace(found, ranks=found.ranks * 4000, evidence=found.evidence * 500, stacks=found.stacks * 100)
    data = write_verdict(many)
    assert len(data) <= MOST_BYTES
    back = read_verdict(data)
    assert back is not None
    assert (back.culprits, back.summary, back.stacks) == (found.culprits, found.summary, ())
    assert {one.role for one in back.ranks} == {"culprit"}
    least = read_verdict(write_verdict(many, 300))
    assert least is not None
    assert (least.culprits, least.evidence) == (found.culprits, ())


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"null"])
def test_what_is_no_verdict_is_none(data: bytes) -> None:
    assert read_verdict(data) is None
