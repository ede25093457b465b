"""From dumps in NCCL's form to a diagnosis: made by ``benchmarks.flight_dumps``, not yet seen on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import pytest
from benchmarks.flight_dumps import Group, Recorder, State
from tests.records_factory import judge_records

from rankscope.diag.classify.records import open_call, read_groups
from rankscope.diag.model import Diagnosis, FlightRecord, RankSnapshot
from rankscope.diag.read.flight_record import parse_record

WORLD = Group("0", "default_pg", (0, 1, 2, 3))


def dumps(
    write: Callable[[Recorder], None],
    *,
    ranks: Sequence[int] = range(4),
    ring: int = 2000,
    rings: Mapping[int, int] | None = None,
) -> list[FlightRecord | None]:
    """The records of a job of four; a rank that is not in ``ranks`` wrote none, ``rings`` are of some."""
    found: list[FlightRecord | None] = []
    for rank in range(4):
        recorder = Recorder(rank, ring=(rings or {}).get(rank, ring))
        write(recorder)
        found.append(parsed(recorder) if rank in ranks else None)
    return found


def parsed(recorder: Recorder) -> FlightRecord:
    """The record, which JSON must tell as the pickle does, but for stacks."""
    record, problems = parse_record(recorder.pickled())
    assert record is not None
    assert not problems
    again, _ = parse_record(recorder.json())
    assert again is not None
    assert [(one.seq, one.op, one.is_completed, one.peer) for one in again.entries] == [
        (one.seq, one.op, one.is_completed, one.peer) for one in record.entries
    ]
    assert again.groups == record.groups
    return record


def said(found: Diagnosis) -> tuple[str, tuple[int, ...], str]:
    return found.verdict, found.culprits, found.rule


def waits(found: Diagnosis) -> Mapping[int, tuple[int, ...]]:
    return {one.rank: one.waits_for for one in found.ranks if one.role == "victim"}


# ---- coalesced groups ------------------------------------------------------------------------------------


def test_a_batch_of_sends_and_receives_has_the_state_of_its_closing_entry() -> None:
    recorder = Recorder(1)
    recorder.calls(WORLD, 3)
    recorder.batch(WORLD, ("send", 2), ("recv", 0))
    recorder.batch(WORLD, ("send", 2), ("recv", 0), state="scheduled")
    record = parsed(recorder)
    assert [(one.op, one.is_p2p, one.is_completed, one.peer) for one in record.entries[3:]] == [
        ("send", True, True, 2),
        ("recv", True, True, 0),
        ("send", True, False, 2),
        ("recv", True, False, 0),
    ]
    assert record.is_whole
    assert record.rank == 1


def test_the_closing_entry_of_a_batch_takes_no_collective_s_place() -> None:
    """It repeats the number of the last collective, and calls itself one."""

    def write(one: Recorder) -> None:
        one.calls(WORLD, 3)
        batch_with_next(one, only=(0, 1))

    odd = dumps(write)
    told = read_groups([RankSnapshot(at, record=record) for at, record in enumerate(odd)], world_size=4)
    ((_, members),) = told.groups.items()
    assert {rank: (one.enqueued, one.completed) for rank, one in members.items()} == dict.fromkeys(
        range(4), (3, 3)
    )
    assert judge_records(*odd).verdict == "Unknown"


def batch_with_next(one: Recorder, *, only: Sequence[int] = (0, 1, 2, 3)) -> None:
    peer = one.rank ^ 1
    if one.rank in only:
        one.batch(WORLD, ("send", peer), ("recv", peer))


def test_a_batch_whose_parts_the_ring_lost_is_left_out() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 3)
        batch_with_next(one)

    for record in dumps(write, ring=1):
        assert record is not None
        assert record.entries == ()
        assert not record.is_whole


def test_a_batch_that_was_recorded_without_its_parts_is_no_collective() -> None:
    recorder = Recorder(0)
    recorder.calls(WORLD, 3)
    recorder.batch(WORLD, state="scheduled")
    record = parsed(recorder)
    assert [(one.seq, one.op, one.is_completed) for one in record.entries] == [
        (seq, "all_reduce", True) for seq in (1, 2, 3)
    ]


def test_a_coalesced_group_that_the_ring_lost_a_part_of_is_not_compared() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        one.coalesced(WORLD, ["all_gather"] * 4, state="scheduled")

    found = judge_records(*dumps(write, rings={1: 3}))
    assert (found.verdict, found.culprits) == ("Unknown", ())


@pytest.mark.parametrize("as_op", ["", "ALLGATHER"])
def test_coalesced_collectives_are_one_with_the_state_of_the_closing_entry(as_op: str) -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        if one.rank != 3:
            one.coalesced(WORLD, ["_broadcast_oop"] * 4, state="scheduled", as_op=as_op)

    records = dumps(write)
    assert records[0] is not None
    assert [(one.seq, one.op) for one in records[0].entries][2:] == [(3, "coalesced _broadcast_oop x 4")]
    assert said(judge_records(*records)) == ("RankNonCommHang", (3,), "4")


def test_another_number_of_coalesced_collectives_is_a_desync() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        one.coalesced(WORLD, ["all_reduce"] * (2 if one.rank == 1 else 3), state="scheduled")

    assert said(judge_records(*dumps(write))) == ("RankNonCommHang", (1,), "3")


def test_what_was_not_launched_yet_was_not_entered() -> None:
    """Rank 2 stands between ``_start_coalescing`` and ``_end_coalescing``."""

    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        one.coalesced(WORLD, ["all_reduce"] * 3, state="scheduled", is_closed=one.rank != 2)

    assert said(judge_records(*dumps(write))) == ("RankNonCommHang", (2,), "4")


def test_before_2_7_a_coalesced_group_is_its_closing_entry() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        one.coalesced(WORLD, [], state="scheduled" if one.rank else "completed")

    records = dumps(write)
    assert records[1] is not None
    assert [(one.seq, one.op, one.is_completed) for one in records[1].entries][2:] == [
        (3, "coalesced", False)
    ]


# ---- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 2])
def test_sends_do_not_move_the_numbers_of_collectives(culprit: int) -> None:
    """The status of a NCCL group has one number for both: that of its last work."""

    def write(one: Recorder) -> None:
        one.calls(WORLD, 5)
        for _ in range(40):
            one.peer(WORLD, "send" if one.rank % 2 else "recv", one.rank ^ 1)
        if one.rank != culprit:
            one.call(WORLD, state="scheduled")

    found = judge_records(*dumps(write))
    assert said(found) == ("RankNonCommHang", (culprit,), "4")
    assert any("not entered collective 6 of group 0" in one.fact for one in found.evidence)


def test_a_group_whose_collectives_the_ring_lost_is_unknown_not_missing() -> None:
    tail = Group("5", "tail", (1, 2))

    def write(one: Recorder) -> None:
        if one.rank in tail.members:
            one.calls(tail, 2)
        one.calls(WORLD, 30)
        if one.rank == 1:
            one.call(tail, state="scheduled")

    found = judge_records(*dumps(write, ring=12))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_a_group_of_which_only_sends_are_left_is_unknown_not_missing() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 5)
        if one.rank == 1:
            for _ in range(12):
                one.peer(WORLD, "send", 0)
        elif one.rank == 0:
            for _ in range(12):
                one.peer(WORLD, "recv", 1)
        one.call(WORLD, state="scheduled")
        if one.rank < 2:
            one.peer(WORLD, "send" if one.rank else "recv", 1 - one.rank, state="scheduled")

    found = judge_records(*dumps(write, rings={1: 1}))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_a_healthy_job_whose_rings_wrapped_at_different_places_raises_no_alarm() -> None:
    def write(one: Recorder) -> None:
        one.calls(Group(f"{7 + one.rank}", "own", (one.rank,)), one.rank)
        one.calls(WORLD, 50)

    assert judge_records(*dumps(write, ring=20)).verdict == "Unknown"


def test_a_member_of_a_group_that_it_never_used_has_not_entered() -> None:
    tail = Group("5", "tail", (1, 2))

    def write(one: Recorder) -> None:
        one.calls(WORLD, 30)
        if one.rank in tail.members:
            one.know(tail)
        if one.rank == 1:
            one.call(tail, state="scheduled")

    assert said(judge_records(*dumps(write, ring=12))) == ("RankNonCommHang", (2,), "4")


def test_calls_of_several_threads_may_be_recorded_out_of_order() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 8)
        if one.rank != 1:
            one.call(WORLD, state="scheduled")
            one.call(WORLD, state="scheduled")
            one.swap_last()

    records = dumps(write)
    found = judge_records(*records)
    assert said(found) == ("RankNonCommHang", (1,), "4")
    assert any("not entered collective 9" in one.fact for one in found.evidence)
    told = read_groups([RankSnapshot(at, record=record) for at, record in enumerate(records)], world_size=4)
    ((_, entries),) = told.entries.items()
    assert sorted(entries[0]) == list(range(1, 11))


@pytest.mark.parametrize("version", ["2.4", "2.6", "2.9", "2.10"])
def test_the_version_changes_nothing(version: str) -> None:
    recorder = Recorder(0)
    recorder.calls(WORLD, 2)
    assert parse_record(recorder.pickled(version=version))[0] == (
        parsed(recorder).__class__(
            parsed(recorder).groups, parsed(recorder).entries, is_whole=True, version=version
        )
    )


# ---- groups, threads, streams ----------------------------------------------------------------------------


def test_groups_of_one_name_with_other_members_are_not_mixed() -> None:
    """``split_group`` gives the halves one name."""

    def write(one: Recorder) -> None:
        half = Group("3", "half", (0, 1) if one.rank < 2 else (2, 3))
        one.calls(WORLD, 2)
        one.calls(half, 4 if one.rank < 2 else 9)
        if one.rank in (0, 2, 3):
            one.call(half, state="scheduled" if one.rank == 0 else "completed")

    assert said(judge_records(*dumps(write))) == ("RankNonCommHang", (1,), "4")


def test_only_the_end_of_a_chain_over_groups_is_guilty() -> None:
    pairs = [Group(str(at + 1), f"pair {at}", (at, at + 1)) for at in range(3)]

    def write(one: Recorder) -> None:
        one.calls(WORLD, 4)
        if one.rank < 3:
            one.call(pairs[one.rank], state="scheduled")

    found = judge_records(*dumps(write))
    assert said(found) == ("RankNonCommHang", (3,), "4")
    assert waits(found) == {0: (3,), 1: (3,), 2: (3,)}


def test_an_operation_that_is_open_on_another_stream_is_what_the_rank_is_inside_of() -> None:
    side = Group("4", "side", (0, 1, 2, 3))
    recorder = Recorder(0)
    recorder.calls(WORLD, 2)
    recorder.call(side, "all_gather", state="scheduled")
    recorder.calls(WORLD, 2)
    found = open_call(parsed(recorder))
    assert found is not None
    assert (found.group, found.op) == ("4", "all_gather")
    recorder.call(WORLD, state="scheduled")
    found = open_call(parsed(recorder))
    assert found is not None
    assert found.group == "0"


def test_what_is_queued_behind_the_oldest_open_one_says_nothing() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 3)
        for _ in range(0 if one.rank == 2 else 5 + one.rank):
            one.call(WORLD, state="scheduled")

    found = judge_records(*dumps(write))
    assert said(found) == ("RankNonCommHang", (2,), "4")
    assert any("not entered collective 4" in one.fact for one in found.evidence)


def test_who_alone_did_not_finish_what_the_others_finished_is_held_by_the_layer() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 3)
        one.call(WORLD, state="scheduled" if one.rank == 2 else "completed")
        if one.rank != 2:
            one.call(WORLD, state="scheduled")

    assert said(judge_records(*dumps(write))) == ("RankCommHang", (2,), "6")


def test_a_dump_that_is_missing_may_be_the_culprit_s() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 3)
        one.call(WORLD, state="scheduled")

    found = judge_records(*dumps(write, ranks=(0, 1, 3)))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "the waits end at rank 2, which could not be observed" in found.summary


# ---- sends and receives ----------------------------------------------------------------------------------


def pipeline(one: Recorder, *, culprit: int, steps: int = 3) -> None:
    """Stages that hand on with batches; one of them does not come to the last."""
    for step in range(steps + 1):
        state: State = "scheduled" if step == steps else "completed"
        if step == steps and one.rank == culprit:
            return
        calls: list[tuple[Literal["send", "recv"], int]] = []
        if one.rank < 3:
            calls.append(("send", one.rank + 1))
        if one.rank > 0:
            calls.append(("recv", one.rank - 1))
        one.batch(WORLD, *calls, state=state)


@pytest.mark.parametrize("culprit", range(4))
def test_the_stage_that_does_not_come_to_a_batch_is_named(culprit: int) -> None:
    found = judge_records(*dumps(lambda one: pipeline(one, culprit=culprit)))
    assert said(found) == ("RankNonCommHang", (culprit,), "4")
    neighbours = {culprit - 1, culprit + 1} & set(range(4))
    assert {rank for rank, whom in waits(found).items() if whom == (culprit,)} >= neighbours


def test_collectives_queued_behind_a_receive_do_not_hide_it() -> None:
    def write(one: Recorder) -> None:
        one.calls(WORLD, 2)
        if one.rank == 1:
            one.peer(WORLD, "recv", 0, state="scheduled")
            one.call(Group("9", "tp", (1, 2)), state="completed")

    assert said(judge_records(*dumps(write))) == ("RankNonCommHang", (0,), "4")


def test_a_receive_from_another_rank_that_has_ended_leaves_it_open() -> None:
    def write(one: Recorder) -> None:
        if one.rank == 1:
            one.peer(WORLD, "recv", 0, state="scheduled")
            one.peer(WORLD, "recv", 2)
        if one.rank == 2:
            one.peer(WORLD, "send", 1)

    assert said(judge_records(*dumps(write))) == ("RankNonCommHang", (0,), "4")


def test_a_send_that_has_ended_is_the_half_that_a_receive_waits_for() -> None:
    """Small sends end before they are received: the receive is in the layer's hands, nobody is waited for."""

    def write(one: Recorder) -> None:
        if one.rank == 0:
            one.peer(WORLD, "send", 1)
        if one.rank == 1:
            one.peer(WORLD, "recv", 0, state="scheduled")

    assert judge_records(*dumps(write)).verdict == "Unknown"


def test_receives_in_a_circle_are_a_deadlock() -> None:
    found = judge_records(*dumps(lambda one: one.peer(WORLD, "recv", (one.rank + 1) % 4, state="scheduled")))
    assert said(found) == ("RankNonCommHang", (0, 1, 2, 3), "5")
