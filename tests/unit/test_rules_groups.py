"""Who is compared with whom, and who waits for whom, where groups of the job are known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.classify_factory import ARank, a_job, a_rank, judge, judge_still, user
from tests.records_factory import a_record, call, judge_records, recorded_job, steps
from tests.rules_factory import facts_of, loading, receiving, said, waiting, with_peer

from rankscope.diag.model import FlightRecord, Frame, GroupProgress


def members(*ranks: int) -> int:
    return hash(ranks) & 0xFFFF or 1


def grouped(rank: ARank, *, seq: int, done: int, of: tuple[int, ...]) -> ARank:
    group = GroupProgress(f"of {of}", len(of), seq, done, members(*of))
    return rank.but(groups=(*rank.groups, group))


# ---- whom a rank that waits may lack -----------------------------------------------------------------------


def in_pair(rank: int, *, seq: int = 5, name: str = "all_reduce", line: int = 11) -> ARank:
    return grouped(a_rank(rank).waiting_in(name, line=line), seq=seq, done=4, of=(0, 1))


def test_a_rank_outside_of_a_group_all_of_whose_members_came_is_not_awaited() -> None:
    found = judge_still(in_pair(0), in_pair(1), loading(2))
    assert said(found) == ("RankCommHang", "network", "low", (), "7")
    assert found.summary.startswith("ranks 0-1 entered all_reduce and none leaves it")
    assert found.ranks[2].role == "bystander"


@pytest.mark.parametrize("name", ["send", "monitored_barrier"])
def test_a_wait_without_a_number_may_be_for_anybody(name: str) -> None:
    """Beside a collective that everyone entered, a message or a store may be what is waited for."""
    waits = a_rank(0).waiting_in(name)
    assert judge_still(waits, *waiting(1), loading(2)).culprits == (2,)
    found = judge_still(grouped(waits, seq=5, done=4, of=(0, 1)), in_pair(1), loading(2))
    assert found.culprits == (2,)


def test_two_stages_each_stuck_in_a_collective_of_their_own_went_no_different_ways() -> None:
    first = [in_pair(rank) for rank in (0, 1)]
    second = [
        grouped(a_rank(rank).waiting_in("broadcast", line=70), seq=9, done=8, of=(2, 3, 4))
        for rank in (2, 3, 4)
    ]
    found = judge_still(*first, *second)
    assert said(found) == ("RankCommHang", "network", "low", (), "7")
    assert "collective 5 of group of (0, 1) and collective 9 of group of (2, 3, 4)" in found.summary


def test_the_odd_one_of_a_group_is_named_among_its_group() -> None:
    first = [in_pair(rank) for rank in (0, 1)]
    second = [
        grouped(a_rank(rank).waiting_in(name, line=70), seq=9, done=8, of=(2, 3, 4))
        for rank, name in ((2, "broadcast"), (3, "barrier"), (4, "broadcast"))
    ]
    found = judge_still(*first, *second)
    assert said(found) == ("RankNonCommHang", "desync", "medium", (3,), "9")
    assert found.ranks[0].role == "victim"


def test_one_operation_from_two_lines_is_legal_and_names_with_low_confidence() -> None:
    """``if rank == 0: broadcast(a) else: broadcast(b)``."""
    ranks = [grouped(rank, seq=5, done=4, of=(0, 1, 2)) for rank in waiting(0, 1, 2)]
    ranks[1] = grouped(a_rank(1).waiting_in(line=48), seq=5, done=4, of=(0, 1, 2))
    assert judge_still(*ranks).confidence == "low"


def test_by_stacks_a_rank_that_stands_with_its_whole_group_is_not_odd() -> None:
    """Groups are known, numbers are not: a stage stands elsewhere by right."""

    def standing(rank: int, name: str, of: tuple[int, ...]) -> ARank:
        return grouped(a_rank(rank).waiting_in(name), seq=3, done=3, of=of)

    stages = [standing(rank, "all_reduce", (0, 1, 2)) for rank in (0, 1, 2)]
    stages += [standing(rank, "broadcast", (3, 4)) for rank in (3, 4)]
    assert judge_still(*stages).culprits == ()
    stages = [standing(rank, "all_reduce", (0, 1)) for rank in (0, 1)]
    stages += [standing(rank, "broadcast", (2, 3, 4)) for rank in (2, 3)]
    stages.append(standing(4, "barrier", (2, 3, 4)))
    assert said(judge_still(*stages)) == ("RankNonCommHang", "desync", "low", (4,), "9")


# ---- path first, then line ---------------------------------------------------------------------------------


def test_a_line_counts_only_where_all_are_in_one_call() -> None:
    lines = [a_rank(rank).waiting_in(line=11 + rank % 2) for rank in range(3)]
    assert judge_still(*lines, a_rank(3).waiting_in("barrier")).culprits == (3,)
    assert judge_still(*lines).culprits == (1,)


def test_where_the_ways_part_is_in_the_evidence() -> None:
    def inside(rank: int, name: str, line: int) -> ARank:
        frames = a_rank(rank).waiting_in("all_gather").frames[:2]
        return a_rank(rank).stuck_in(*frames, user(name, line), user("train", 30 + (name == "evaluate")))

    found = judge_still(inside(0, "evaluate", 52), *(inside(rank, "step", 44) for rank in (1, 2)))
    assert said(found)[3:] == ((0,), "9")
    assert "rank 0 went into evaluate (train.py:52), ranks 1-2 into step (train.py:44)" not in facts_of(found)
    assert (
        "rank 0 went on from train (train.py:31) into evaluate, ranks 1-2 from train (train.py:30) into step"
        in facts_of(found)
    )


# ---- the graph ---------------------------------------------------------------------------------------------


def test_all_ranks_of_a_circle_over_two_groups_are_named_edge_by_edge() -> None:
    """Ranks 0-1 wait in one group for 2-3, which wait in another for them; rank 4 waits for all."""

    def at(rank: int, one: tuple[int, int], other: tuple[int, int], third: tuple[int, int]) -> ARank:
        groups = tuple(
            GroupProgress(name, size, *numbers, 7)
            for name, size, numbers in (("a", 4, one), ("b", 4, other), ("0", 5, third))
        )
        return a_rank(rank).waiting_in().but(groups=groups)

    ranks = [at(rank, (5, 4), (8, 8), (3, 3)) for rank in (0, 1)]
    ranks += [at(rank, (4, 4), (9, 8), (3, 3)) for rank in (2, 3)]
    last = a_rank(4).waiting_in().but(groups=(GroupProgress("0", 5, 4, 3, 7),))
    found = judge_still(*ranks, last)
    assert said(found) == ("RankNonCommHang", "order_deadlock", "high", (0, 1, 2, 3), "5")
    edges = [one.fact for one in found.evidence if one.source == "wait-for graph"]
    assert edges == ["ranks 0-1 wait for ranks 2-3", "ranks 2-3 wait for ranks 0-1"]
    assert any("ranks 2-3 have not entered collective 5 of group a" in one for one in facts_of(found))
    assert [one.waits_for for one in found.ranks] == [(2, 3), (2, 3), (0, 1), (0, 1), (0, 1, 2, 3)]


def test_a_chain_goes_through_collectives_and_messages_to_its_end() -> None:
    """Ranks 0-1 wait in a collective for 2, which receives from 3, which loads."""
    ranks = [rank.but(step=5) for rank in waiting(0, 1, seq=7)]
    ranks += [receiving(2).at(6).but(step=5), loading(3).at(7, size=2, group="x").but(step=5)]
    looks = [with_peer(a_job(*ranks, seconds=seconds), {2: 3}) for seconds in (0.0, 4.0)]
    found = judge(*looks, silent=12.0)
    assert said(found)[:1] + said(found)[3:] == ("RankNonCommHang", (3,), "4")
    assert [one.waits_for for one in found.ranks] == [(3,), (3,), (3,), ()]
    assert "recv of rank 2 waits for rank 3" in facts_of(found)
    assert "every chain of waits ends at rank 3" in facts_of(found)
    assert any("rank 2 has not entered collective 7 of group 0" in one for one in facts_of(found))


def test_a_circle_goes_through_collectives_and_messages() -> None:
    """Rank 1 receives from rank 2, which waits with all others in the next reduction for rank 1."""
    ranks = [rank.but(step=5) for rank in waiting(0, 2, 3, seq=7)]
    ranks.insert(1, receiving(1).at(6).but(step=5))
    looks = [with_peer(a_job(*ranks, seconds=seconds), {1: 2}) for seconds in (0.0, 4.0)]
    found = judge(*looks, silent=12.0)
    assert said(found) == ("RankNonCommHang", "order_deadlock", "high", (1, 2), "5")
    assert "recv of rank 1 waits for rank 2" in facts_of(found)
    assert found.ranks[3].waits_for == (1, 2)


# ---- the line of one who called another operation ----------------------------------------------------------


def without_frames(record: FlightRecord) -> FlightRecord:
    return replace(record, entries=tuple(replace(one, frames=()) for one in record.entries))


def test_where_records_have_no_stacks_the_line_is_the_rank_s_own() -> None:
    """gloo's records in JSON, as torch's server gives them."""
    odd, rest = (
        without_frames(a_record(*steps(3), call(op, 4, ended=False))) for op in ("broadcast", "all_reduce")
    )
    records = recorded_job(rest, odd, rest)
    stacks = a_job(*waiting(0), a_rank(1).waiting_in("broadcast", line=48), *waiting(2))
    both = replace(
        stacks,
        ranks=tuple(
            replace(stack, record=one.record) for stack, one in zip(stacks.ranks, records.ranks, strict=True)
        ),
    )
    found = judge(both, both)
    assert found.rule == "3"
    assert found.location is not None
    assert (found.location.rank, found.location.line) == (1, 48)
    assert judge_records(rest, odd, rest).location is None


def test_work_of_rank_0_alone_shows_as_a_call_that_the_others_do_not_make() -> None:
    """A state_dict on rank 0: an all_gather there, the next step's all_reduce everywhere else."""
    inside, step = (a_rank(0).waiting_in(name).frames[:2] for name in ("all_gather", "all_reduce"))
    alone = a_rank(0).stuck_in(*inside, user("full_state", 70), user("keep", 60), user("train", 36))
    others = [a_rank(rank).stuck_in(*step, user("step", 44), user("train", 30)) for rank in (1, 2, 3)]
    stacks = a_job(alone, *others)
    records = [a_record(*steps(3), call("all_gather", 4, ended=False))]
    records += [a_record(*steps(3), call("all_reduce", 4, ended=False))] * 3
    numbered = replace(
        stacks,
        ranks=tuple(replace(one, record=record) for one, record in zip(stacks.ranks, records, strict=True)),
    )
    by_numbers, by_stacks = judge(numbered, numbered), judge(stacks, stacks)
    assert (by_numbers.rule, by_stacks.rule) == ("3", "9")
    for found in (by_numbers, by_stacks):
        assert found.culprits == (0,)
        ways = "from train (train.py:36) into keep, ranks 1-3 from train (train.py:30) into step"
        assert f"rank 0 went on {ways}" in facts_of(found)


def test_the_call_of_a_line_is_its_name() -> None:
    line = Frame("migrate", "/workspace/swarm.py", 6954)
    waits = [a_rank(rank).stuck_in(line) for rank in (0, 2)]
    texts = {6954: "radius = comm.allreduce(local, op=MPI.MAX)", 20: "time.sleep(60)"}
    found = judge_still(*waits, a_rank(1).stuck_in(user("compute", 20)), lines=texts)
    assert (found.culprits, found.ranks[0].position) == ((1,), "allreduce")
