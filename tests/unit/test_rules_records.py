"""From flight records alone to a diagnosis: rows 3 to 6 and S1."""

from __future__ import annotations

import msgspec
import pytest
from tests.classify_factory import a_job, a_rank, judge, user
from tests.records_factory import MS, a_record, call, judge_records, peer_call, recorded_job, steps

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.classify.records import members_hash, read_groups
from rankscope.diag.model import Collective, Diagnosis, ExitFacts, FlightRecord, GroupProgress, RankSnapshot
from rankscope.watchdog.probe import groups as probe_groups


def said(found: Diagnosis) -> tuple[str, str, str, tuple[int, ...], str]:
    return found.verdict, found.kind, found.confidence, found.culprits, found.rule


def inside(seq: int = 4, op: str = "all_reduce", **changes: object) -> FlightRecord:
    return a_record(*steps(seq - 1), call(op, seq, ended=False, **changes))  # type: ignore[arg-type] # test builder


def described(record: FlightRecord, name: str, description: str) -> FlightRecord:
    """The record with another description of one group."""
    groups = (
        msgspec.structs.replace(one, description=description) if one.name == name else one
        for one in record.groups
    )
    return msgspec.structs.replace(record, groups=tuple(groups))


def message(
    op: str,
    peer: int,
    size: int,
    dtype: str = "Float",
    *,
    ended: bool = False,
    seq: int = 1,
    shape: tuple[int, ...] | None = None,
) -> Collective:
    """One half of a message of that many elements."""
    tensor = ((shape or (size,)),)
    return msgspec.structs.replace(
        peer_call(op, peer, seq=seq, ended=ended),
        input_sizes=tensor,
        output_sizes=tensor,
        input_dtypes=(dtype,),
        output_dtypes=(dtype,),
    )


# ---- row 4: missing ranks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "culprit"), [(2, 0), (4, 2), (9, 8)])
def test_the_rank_that_has_not_entered_is_named(world: int, culprit: int) -> None:
    found = judge_records(*(a_record(*steps(3)) if rank == culprit else inside() for rank in range(world)))
    assert said(found) == ("RankNonCommHang", "none", "low", (culprit,), "4")
    assert found.location is not None
    assert (found.location.rank, found.location.function, found.location.line) == (culprit, "train_step", 11)
    assert "the code after all_reduce at train_step (train.py:11)" in found.summary
    assert found.ranks[culprit].state == "hung"
    assert {one.state for one in found.ranks if one.rank != culprit} == {"waiting"}
    assert found.observed == f"0-{world - 1}"
    assert found.unobserved == ()


def test_a_rank_that_never_called_anything_has_not_entered() -> None:
    assert judge_records(inside(1), inside(1), a_record()).culprits == (2,)


def test_a_rank_without_a_record_may_be_the_one() -> None:
    found = judge_records(inside(), inside(), None)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert found.summary.endswith("the waits end at rank 2, which could not be observed: it may wait too")
    assert found.would_change == "a stack or a flight record of rank 2"
    assert {one.rank: one.waits_for for one in found.ranks} == {0: (2,), 1: (2,), 2: ()}


def test_a_rank_without_a_record_makes_the_answer_less_sure() -> None:
    found = judge_records(inside(), a_record(*steps(3)), None)
    assert (found.culprits, found.confidence) == ((1,), "low")


def cut_off(*calls: Collective) -> FlightRecord:
    """A record whose newest entries are missing, and of which no status is known."""
    return msgspec.structs.replace(a_record(*calls, status={}, whole=False), is_cut=True)


@pytest.mark.parametrize("read", [0, 1, 20])
def test_a_rank_whose_record_was_cut_off_may_be_anywhere(read: int) -> None:
    found = judge_records(inside(31), cut_off(*steps(read)), a_record(*steps(30)), inside(31))
    assert (found.verdict, found.culprits, found.confidence) == ("RankNonCommHang", (2,), "low")
    assert "rank 1 could not be observed" in found.summary
    alone = judge_records(inside(31), cut_off(*steps(read)), inside(31))
    assert (alone.verdict, alone.culprits) == ("Unknown", ())


def test_a_message_to_a_rank_whose_record_was_cut_off_may_have_come() -> None:
    found = judge_records(a_record(peer_call("recv", 1)), cut_off(peer_call("send", 0, seq=7, ended=True)))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_all_entered_and_none_left_is_not_called_a_hang_from_one_look() -> None:
    found = judge_records(inside(), inside())
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "a moment of a healthy job" in found.summary


def test_a_finished_job_is_no_hang() -> None:
    assert judge_records(a_record(*steps(9)), a_record(*steps(9))).verdict == "Unknown"


def test_what_a_wrapped_ring_lost_is_unknown_not_missing() -> None:
    """The other group's calls fell out of rank 1's ring, and an old torch wrote no status."""
    lost = a_record(*steps(3, first=50), default=(), status={}, whole=False)
    sub = {"7": (0, 1)}
    other = a_record(*steps(3, first=50), call(seq=2, group="7", ended=False), status={}, members=sub)
    found = judge_records(other, lost)
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_ranks_that_run_ahead_wait_where_the_first_open_collective_is() -> None:
    """NCCL: the host enqueues on; rank 1 has enqueued less, but entered what all are held up in."""
    ahead = [call(seq=seq, ended=False) for seq in range(101, 121)]
    records = (
        a_record(*ahead, status={"0": (120, 100)}),
        a_record(*ahead[:15], status={"0": (115, 100)}),
        a_record(call(seq=100), status={"0": (100, 100)}),
    )
    found = judge_records(*records)
    assert (found.culprits, found.rule) == ((2,), "4")
    assert any("not entered collective 101" in one.fact for one in found.evidence)


def test_an_entry_beyond_the_last_enqueued_one_is_inside_of_the_call() -> None:
    record = a_record(*steps(3), call(seq=4, ended=False), status={"0": (3, 3)})
    found = judge_records(record, record, a_record(*steps(3)))
    assert found.culprits == (2,)


def test_a_group_made_anew_under_an_old_name_counts_from_the_start() -> None:
    before = steps(500)
    again = a_record(*before, *steps(2), call(seq=3, ended=False), status={"0": (3, 2)})
    late = a_record(*before, *steps(2), status={"0": (2, 2)})
    assert judge_records(again, again, late).culprits == (2,)


# ---- chains and circles -----------------------------------------------------------------------------------


def in_group(name: str, members: tuple[int, ...] = ()) -> FlightRecord:
    return a_record(*steps(3), call(group=name, ended=False), members={name: members} if members else None)


def test_only_the_end_of_a_chain_over_known_groups_is_guilty() -> None:
    chain = [in_group("9", (0, 2)), in_group("7", (0, 1)), in_group("8", (2, 3)), a_record(*steps(3))]
    found = judge_records(*chain)
    assert (found.culprits, found.confidence) == ((3,), "low")
    assert {one.rank: one.waits_for for one in found.ranks if one.role == "victim"} == {
        0: (3,),
        1: (3,),
        2: (3,),
    }


@pytest.mark.parametrize(
    ("description", "title"),
    [("DATA_PARALLEL_GROUP", "DATA_PARALLEL_GROUP (7)"), ("mesh_tp", "mesh_tp (7)"), ("7", "7"), ("", "7")],
)
def test_a_group_is_named_by_its_description(description: str, title: str) -> None:
    chain = [in_group("9", (0, 2)), in_group("7", (0, 1)), in_group("8", (2, 3)), a_record(*steps(3))]
    found = judge_records(*(described(record, "7", description) for record in chain))
    assert any(f"collective 1 of group {title}, rank 1" in one.fact for one in found.evidence)


def test_the_group_of_all_ranks_keeps_its_number() -> None:
    found = judge_records(inside(), a_record(*steps(3)))
    assert any("collective 4 of group 0," in one.fact for one in found.evidence)


def test_where_no_record_tells_the_members_the_only_rank_that_waits_in_nothing_is_the_end() -> None:
    found = judge_records(in_group("3"), in_group("1"), in_group("2"), a_record(*steps(3)))
    assert said(found) == ("RankNonCommHang", "none", "medium", (3,), "4")
    assert any("no record tells the members" in one.fact for one in found.evidence)


def test_many_ranks_that_wait_in_nothing_end_no_chain() -> None:
    found = judge_records(in_group("3"), in_group("1"), *[a_record(*steps(3))] * 3)
    assert (found.verdict, found.culprits) == ("Unknown", ())


@pytest.mark.parametrize("last", [(3,), (3, 4), (5, 3, 4)])
def test_a_chain_over_known_groups_ends_at_members_without_a_record(last: tuple[int, ...]) -> None:
    """Rank 2 waits in a group of which one or more others have no record."""
    chain = [in_group("9", (0, 2)), in_group("7", (0, 1)), in_group("8", (2, *last))]
    found = judge_records(*chain, *[None] * len(last))
    assert (found.verdict, found.culprits, found.confidence) == ("Unknown", (), "low")
    named = "rank 3" if len(last) == 1 else f"ranks 3-{2 + len(last)}"
    assert f"the waits end at {named}, which could not be observed" in found.summary
    assert any(f"nothing is known of {named} of group" in one.fact for one in found.evidence)
    assert found.ranks[1].waits_for == tuple(sorted(last))


def test_a_rank_without_a_record_outside_of_all_groups_that_wait_is_not_where_they_end() -> None:
    pair = in_group("7", (0, 1))
    assert "the waits end" not in judge_records(pair, pair, None).summary


def test_a_message_may_end_at_a_rank_without_a_record() -> None:
    found = judge_records(a_record(peer_call("recv", 1)), a_record(peer_call("recv", 2)), None)
    assert "the waits end at rank 2, which could not be observed" in found.summary


def test_a_rank_that_told_nothing_may_be_where_the_chain_ends() -> None:
    found = judge_records(in_group("3"), in_group("1"), in_group("2"), a_record(*steps(3)), None)
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_members_of_a_group_that_ended_a_collective_are_known() -> None:
    """Both members are inside of the second: ranks 2 and 3 have nothing to do with it."""
    pair = a_record(*steps(3), call(seq=1, group="5"), call(seq=2, group="5", ended=False))
    found = judge_records(pair, pair, pair, a_record(*steps(3)))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_two_groups_in_different_order_are_a_circle() -> None:
    members = {"5": (0, 1), "6": (0, 1)}
    one = a_record(*steps(2), call(group="5", ended=False), members=members)
    two = a_record(*steps(2), call(group="6", ended=False), members=members)
    found = judge_records(one, two, a_record(*steps(2), call(seq=3, ended=False)))
    assert (found.rule, found.culprits) == ("5", (0, 1))
    assert found.kind == "order_deadlock"
    assert found.ranks[2].waits_for == (0, 1)


def test_two_ranks_in_groups_of_unknown_members_can_only_wait_for_each_other() -> None:
    assert judge_records(in_group("5"), in_group("6")).culprits == (0, 1)


def test_in_a_larger_job_a_circle_of_unknown_members_is_not_guessed() -> None:
    found = judge_records(in_group("5"), in_group("6"), in_group("7"))
    assert (found.verdict, found.culprits) == ("Unknown", ())


# ---- row 3: desync ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1, 3])
@pytest.mark.parametrize(
    "odd",
    [
        call("broadcast", 4, ended=False, line=32),
        call("all_reduce", 4, ended=False, line=32, sizes=((32,),)),
        call("all_reduce", 4, ended=False, line=32, dtypes=("Half",)),
    ],
)
def test_the_minority_is_named_whatever_the_order_of_the_ranks(culprit: int, odd: Collective) -> None:
    records = [a_record(*steps(3), odd) if rank == culprit else inside() for rank in range(4)]
    found = judge_records(*records)
    assert said(found) == ("RankNonCommHang", "desync", "medium", (culprit,), "3")
    assert found.location is not None
    assert (found.location.rank, found.location.line) == (culprit, 32)


def test_a_tie_names_both_sides() -> None:
    found = judge_records(inside(op="broadcast"), inside(), inside(), inside(op="broadcast"))
    assert said(found) == ("RankNonCommHang", "desync", "low", (0, 1, 2, 3), "3")
    assert "a tie" in found.summary


def test_a_rank_that_left_the_odd_collective_alone_is_still_the_odd_one() -> None:
    """The root of a broadcast does not wait for anybody."""
    gone_on = a_record(*steps(3), call("broadcast", 4), call(seq=5, ended=False))
    assert judge_records(inside(), gone_on, inside()).culprits == (1,)


def test_what_all_have_left_behind_was_legal() -> None:
    one = a_record(call("broadcast", 1), *steps(2, first=2), call(seq=4, ended=False))
    other = a_record(call("all_reduce", 1), *steps(2, first=2))
    assert said(judge_records(one, one, other))[3:] == ((2,), "4")


@pytest.mark.parametrize(
    ("op", "sizes", "dtypes"),
    [
        ("all_gather", ((7,),), ("Float",)),
        ("all_to_all", ((3, 1),), ("Float",)),
        ("gather", ((9,),), ("Float",)),
        ("scatter", (), ()),
        ("broadcast", ((16, 4),), ("Float",)),
        ("broadcast", ((256,),), ("Byte",)),
        ("all_reduce", ((8, 8),), ("Float",)),
        ("all_reduce", (), ()),
        ("barrier", ((1,),), ("Float",)),
    ],
)
def test_what_an_operation_lets_differ_is_no_desync(
    op: str, sizes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]
) -> None:
    odd = a_record(*steps(3), call(op, 4, ended=False, sizes=sizes, dtypes=dtypes))
    assert judge_records(inside(op=op), odd, inside(op=op)).verdict == "Unknown"


def test_an_uneven_reduce_scatter_must_be_uneven_alike() -> None:
    parts = call("reduce_scatter", 4, ended=False, sizes=((3,), (5,)), dtypes=("Float", "Float"))
    other = call("reduce_scatter", 4, ended=False, sizes=((3,), (6,)), dtypes=("Float", "Float"))
    same = a_record(*steps(3), parts)
    assert judge_records(same, same, a_record(*steps(3), other)).culprits == (2,)


# ---- row 6 ------------------------------------------------------------------------------------------------


def test_who_did_not_finish_what_the_others_left_is_held_by_the_communication_layer() -> None:
    past = a_record(*steps(4), call(seq=5, ended=False, started=True))
    held = inside(4, started=True)
    found = judge_records(past, held, past)
    assert said(found) == ("RankCommHang", "network", "low", (1,), "6")
    assert found.ranks[0].waits_for == (1,)


def records_of(*newest: tuple[int, bool]) -> list[FlightRecord]:
    """Gloo's records up to some collective each, and whether it has ended."""
    return [a_record(*steps(seq - 1), call(seq=seq, ended=ended)) for seq, ended in newest]


@pytest.mark.parametrize(
    "records",
    [
        # Real: a healthy job of 3 ranks, whose records were fetched one after the other.
        records_of((94, False), (92, True), (95, False)),
        records_of((93, False), (92, False), (95, False)),
        records_of((69, False), (70, False), (69, True)),
    ],
)
def test_records_of_different_moments_blame_nobody(records: list[FlightRecord]) -> None:
    found = judge_records(*records)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "not of one moment" in found.summary


def test_a_root_that_leaves_a_broadcast_alone_is_of_the_same_moment() -> None:
    roots = a_record(*steps(3), *(call("broadcast", seq) for seq in (4, 5, 6)), call(seq=7, ended=False))
    found = judge_records(roots, a_record(*steps(3)), a_record(*steps(3), call("broadcast", 4)))
    assert "not of one moment" not in found.summary


# ---- sends and receives -----------------------------------------------------------------------------------


def test_a_chain_of_receives_ends_at_the_rank_that_does_not_send() -> None:
    records = [a_record(*steps(2)), *(a_record(*steps(2), peer_call("recv", rank)) for rank in range(3))]
    found = judge_records(*records)
    assert (found.verdict, found.culprits, found.rule) == ("RankNonCommHang", (0,), "4")
    assert found.ranks[3].waits_for == (0,)


def test_receives_in_a_circle_are_a_deadlock() -> None:
    records = [a_record(peer_call("recv", (rank + 1) % 3)) for rank in range(3)]
    found = judge_records(*records)
    assert (found.culprits, found.kind, found.rule) == ((0, 1, 2), "order_deadlock", "5")


def test_a_receive_whose_send_was_called_waits_for_nobody() -> None:
    found = judge_records(a_record(peer_call("recv", 1)), a_record(peer_call("send", 0)))
    assert found.culprits == ()


def test_receives_whose_peer_told_nothing_name_nobody() -> None:
    found = judge_records(a_record(peer_call("recv", 1)), None)
    assert (found.verdict, found.culprits) == ("Unknown", ())


# ---- S1: lateness -----------------------------------------------------------------------------------------


def paced(late_ms: float, *, count: int = 40, clock_ms: float = 0.0, pause_ms: float = 0.0) -> FlightRecord:
    """A rank of a job with steps of 50 ms that calls each collective that much late, by its own clock.

    ``pause_ms`` is how much later the whole job goes on from the middle.
    """
    calls = [
        call(seq=seq, at=int((50 * seq + late_ms + clock_ms + (pause_ms if seq > count // 2 else 0)) * MS))
        for seq in range(1, count + 1)
    ]
    return a_record(*calls)


def once_late(pause_ms: float) -> FlightRecord:
    """The rank that the job of ``paced(0, pause_ms=...)`` waited for, once."""
    record = paced(0, pause_ms=pause_ms)
    at = len(record.entries) // 2 - 1
    entry = record.entries[at]
    late = msgspec.structs.replace(entry, created_ns=entry.created_ns + int(pause_ms * MS))
    return msgspec.structs.replace(record, entries=(*record.entries[:at], late, *record.entries[at + 1 :]))


def test_a_rank_that_is_late_most_times_is_slow() -> None:
    found = judge_records(paced(0), paced(40), paced(0.3), paced(0.1))
    assert said(found) == ("RankNonCommSlow", "none", "medium", (1,), "S1")
    assert found.severity == "info"
    assert found.ranks[1].state == "slow"
    assert found.ranks[1].rank_class == "RankNonCommSlow"


@pytest.mark.parametrize(
    ("others", "late"),
    [
        (paced(0), paced(4)),  # too little of the time
        (paced(0, pause_ms=2_000), once_late(2_000)),  # one event
        (paced(0, count=12), paced(40, count=12)),  # too few
    ],
)
def test_a_little_or_once_or_rarely_late_is_not_slow(others: FlightRecord, late: FlightRecord) -> None:
    assert judge_records(others, late).verdict == "Unknown"


def uneven(*late_ms: float) -> tuple[FlightRecord, FlightRecord]:
    """Two ranks: how much later than the first the second is, step by step (negative: earlier)."""
    start = [100.0 * seq + sum(map(abs, late_ms[:seq])) for seq in range(len(late_ms))]
    one = [
        call(seq=seq + 1, at=int((at + max(0.0, -late)) * MS))
        for seq, (at, late) in enumerate(zip(start, late_ms, strict=True))
    ]
    two = [
        call(seq=seq + 1, at=int((at + max(0.0, late)) * MS))
        for seq, (at, late) in enumerate(zip(start, late_ms, strict=True))
    ]
    return a_record(*one), a_record(*two)


@pytest.mark.parametrize(
    ("late", "is_slow"),
    [
        ([80.0] * 40, True),
        ([80.0, -80.0] * 20, False),  # now the one, now the other
        ([*[10.0] * 39, 5_000.0], False),  # one event outweighs all others
    ],
)
def test_being_late_must_be_one_rank_s_pace(late: list[float], is_slow: bool) -> None:
    found = judge_records(*uneven(*late))
    assert (found.verdict == "RankNonCommSlow", found.culprits) == (is_slow, (1,) if is_slow else ())


def test_two_ranks_that_are_late_together_blame_nobody() -> None:
    assert judge_records(paced(0), paced(40), paced(40), paced(0)).verdict == "Unknown"


def test_a_clock_that_is_an_hour_off_does_not_make_a_rank_late() -> None:
    assert judge_records(paced(0), paced(0.2, clock_ms=3_600_000.0), paced(0.1)).verdict == "Unknown"


def test_a_late_rank_in_a_collective_that_it_has_not_entered_yet_is_named_with_low_confidence() -> None:
    """A single look: it may just be late again."""
    waits = msgspec.structs.replace(
        paced(0), entries=(*paced(0).entries, call(seq=41, ended=False)), groups=()
    )
    late = msgspec.structs.replace(paced(40), groups=())
    found = judge_records(waits, late, waits)
    assert (found.culprits, found.confidence) == ((1,), "low")


def on_gpu(
    record: FlightRecord, *, begins: list[float], took_ms: float = 10.0, seen: bool = True
) -> FlightRecord:
    """The record with starts that many ms after the beginning of its steps of 50 ms, and ends after them.

    ``seen``: whether a start was found out when it was, or together with the end, as torch does.
    """
    entries: list[Collective] = []
    for entry, begin in zip(record.entries, begins, strict=True):
        step = call().created_ns + 50 * entry.seq * MS
        started, ended = step + int(begin * MS), step + int((begin + took_ms) * MS)
        found = started if seen else ended - 1_000
        entries.append(msgspec.structs.replace(entry, started_ns=found, completed_ns=ended))
    return msgspec.structs.replace(record, entries=tuple(entries))


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("late_ms", [12.0, 40.0])
def test_a_host_that_calls_late_holds_up_nobody_whose_device_is_behind(late_ms: float, *, seen: bool) -> None:
    """All devices begin together, a long time after the last call."""
    begins = [300.0] * 40
    found = judge_records(*(on_gpu(paced(late), begins=begins, seen=seen) for late in (0, late_ms, 0.3)))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_a_device_that_begins_late_is_late_whenever_its_host_called() -> None:
    found = judge_records(*(on_gpu(paced(0), begins=[late] * 40) for late in (200.0, 240.0, 200.1)))
    assert (found.verdict, found.culprits) == ("RankNonCommSlow", (1,))


@pytest.mark.parametrize("seen", [True, False])
def test_a_late_host_whose_device_is_free_is_late(*, seen: bool) -> None:
    """Its device begins at once; a watchdog that looks now and then finds that out up to 100 ms later."""
    wait = [0.0 if seen else 11.0 * (step % 9) for step in range(40)]
    records = [
        on_gpu(paced(late), begins=[late + one for one in wait], seen=seen) for late in (0.0, 40.0, 0.2)
    ]
    assert (judge_records(*records).verdict, judge_records(*records).culprits) == ("RankNonCommSlow", (1,))


# ---- records beside pages and stacks ----------------------------------------------------------------------


def test_members_are_hashed_as_in_the_probe() -> None:
    assert members_hash((3, 1, 2)) == probe_groups.members_hash((1, 2, 3))


def page(rank: int, enqueued: int, completed: int, *, beat: float | None = 0.5) -> RankSnapshot:
    group = GroupProgress("0", 2, enqueued, completed, members_hash((0, 1)))
    return a_rank(rank).but(groups=(group,), beat=beat).build(0.0)


def test_a_rank_with_a_page_and_one_with_a_record_are_in_one_group() -> None:
    told = read_groups((page(0, 4, 3), RankSnapshot(1, record=a_record(*steps(3)))), world_size=2)
    ((_, members),) = told.groups.items()
    assert {rank: (one.enqueued, one.completed) for rank, one in members.items()} == {0: (4, 3), 1: (3, 3)}


@pytest.mark.parametrize(("beat", "expected"), [(0.5, 4), (60.0, 7)])
def test_a_fresh_page_is_believed_before_the_record(beat: float, expected: int) -> None:
    both = msgspec.structs.replace(page(0, 4, 4, beat=beat), record=a_record(*steps(7)))
    ((_, members),) = read_groups((both,), world_size=1).groups.items()
    assert members[0].enqueued == expected


def test_records_and_stacks_of_one_look_do_not_tell_a_held_rank_from_an_older_record() -> None:
    """All stacks are in all_reduce; rank 1 has called one fewer, and everyone entered that one."""
    job = a_job(*(a_rank(rank).waiting_in() for rank in range(3)), facts=False)
    ranks = [
        msgspec.structs.replace(one, record=inside(4) if one.rank != 1 else inside(3)) for one in job.ranks
    ]
    held = judge(msgspec.structs.replace(job, ranks=tuple(ranks)))
    assert (held.verdict, held.culprits) == ("Unknown", ())
    assert "rank 1 is in collective 3" in held.summary


def test_a_stack_outside_of_the_collective_places_the_rank_that_the_record_misses() -> None:
    job = a_job(a_rank(0).waiting_in(), a_rank(1).stuck_in(user("load_batch", 8)), facts=False)
    records = (inside(4), a_record(*steps(3)))
    ranks = tuple(
        msgspec.structs.replace(one, record=record) for one, record in zip(job.ranks, records, strict=True)
    )
    found = judge(msgspec.structs.replace(job, ranks=ranks))
    assert (found.culprits, found.rule, found.kind) == ((1,), "4", "data_loading")


def test_two_looks_at_records_that_moved_are_health() -> None:
    found = judge_records(inside(4), a_record(*steps(3)), again=(inside(6), inside(6)))
    assert found.verdict == "Healthy"


def test_two_looks_at_records_that_stand_still_are_sure() -> None:
    records = (inside(4), a_record(*steps(3)), inside(4))
    found = judge_records(*records, again=records)
    assert (found.culprits, found.rule) == ((1,), "4")


# ---- row 3: messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "received"),
    [((4096, "Float"), (8192, "Float")), ((64, "Half"), (64, "Float")), ((10, "Int"), (9, "Int"))],
)
@pytest.mark.parametrize("before", [0, 3])
def test_a_message_of_other_bytes_than_are_received_is_a_tie(
    sent: tuple[int, str], received: tuple[int, str], before: int
) -> None:
    done = range(before)
    found = judge_records(
        a_record(*(message("send", 1, 8, ended=True) for _ in done), message("send", 1, *sent)),
        a_record(*(message("recv", 0, 8, ended=True) for _ in done), message("recv", 0, *received)),
        a_record(peer_call("recv", 1)),
    )
    assert said(found) == ("RankNonCommHang", "desync", "low", (0, 1), "3")
    assert found.summary.startswith(
        f"a tie: in group 0 rank 0 called send of [{sent[0]}] {sent[1]} to rank 1;"
        f" rank 1 called recv of [{received[0]}] {received[1]} from rank 0"
    )
    assert found.ranks[2].role == "victim"


def test_an_eager_send_that_ended_before_its_larger_receive_is_the_other_half_of_it() -> None:
    found = judge_records(
        a_record(message("send", 1, 16, ended=True), *steps(1)), a_record(message("recv", 0, 32))
    )
    assert (found.kind, found.culprits) == ("desync", (0, 1))


@pytest.mark.parametrize(
    ("send", "recv"),
    [
        (message("send", 1, 64), message("recv", 0, 64)),
        (message("send", 1, 64, shape=(8, 8)), message("recv", 0, 64)),
        (message("send", 1, 128, "BFloat16"), message("recv", 0, 64, "Float")),
        (peer_call("send", 1), message("recv", 0, 64)),
    ],
)
def test_a_message_of_as_many_bytes_is_no_desync(send: Collective, recv: Collective) -> None:
    found = judge_records(a_record(send), a_record(recv))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "both sides of each message have called it" in found.summary


def test_the_next_message_of_another_size_is_not_compared_with_this_one() -> None:
    found = judge_records(
        a_record(message("send", 1, 64), message("send", 1, 32)), a_record(message("recv", 0, 64))
    )
    assert found.kind != "desync"


def test_messages_of_records_that_lost_their_beginnings_are_aligned_by_those_before() -> None:
    sizes = (3, 5, 7, 9)
    sends = [message("send", 1, size, ended=True) for size in sizes]
    receives = [message("recv", 0, size, ended=True) for size in sizes]
    odd = (message("send", 1, 11), message("recv", 0, 12))
    aligned = judge_records(
        a_record(*sends, odd[0], whole=False), a_record(*receives[1:], odd[1], whole=False)
    )
    assert (aligned.kind, aligned.culprits) == ("desync", (0, 1))
    behind = judge_records(
        a_record(*sends[:-1], odd[0], whole=False), a_record(*receives, odd[1], whole=False)
    )
    assert behind.kind != "desync"


@pytest.mark.parametrize("ranks", [2, 5])
def test_all_ranks_in_one_collective_of_a_group_without_a_name_are_in_it(ranks: int) -> None:
    """A watchdog's line names no group."""
    found = judge_records(*[a_record(call(seq=9, group="", ended=False), whole=False)] * ranks)
    assert "everyone is in it" in found.summary
    assert "()" not in found.summary


# ---- row 4 on the device ----------------------------------------------------------------------------------


def on_device(
    *, started: bool | None, seq: int = 4, is_inside: bool = False, group: str = "0"
) -> FlightRecord:
    """A rank in a collective of which its GPU has begun, or not begun; gloo tells neither."""
    members = {group: (0, 1, 2, 3)} if group != "0" else None
    record = a_record(
        *steps(seq - 1, group=group),
        call(seq=seq, group=group, ended=False, started=started),
        members=members,
    )
    groups = (
        msgspec.structs.replace(one, inside=seq) if is_inside and one.name == group else one
        for one in record.groups
    )
    return msgspec.structs.replace(record, groups=tuple(groups))


@pytest.mark.parametrize("behind", [(3,), (0,), (1, 2)])
def test_who_has_not_begun_what_runs_on_all_others_holds_them_up(behind: tuple[int, ...]) -> None:
    records = [on_device(started=rank not in behind) for rank in range(4)]
    found = judge_records(*records)
    assert said(found) == ("RankNonCommHang", "none", "low", behind, "4")
    assert "all_reduce, collective 4 of group 0" in found.summary
    assert "not begun it" in found.summary
    assert found.location is not None
    assert (found.location.rank, found.location.line) == (behind[0], 11)
    assert {one.rank: one.waits_for for one in found.ranks if one.role == "victim"} == {
        rank: behind for rank in range(4) if rank not in behind
    }
    assert judge_records(*records, again=records).confidence == "medium"


@pytest.mark.parametrize(("seq", "sets_up"), [(1, True), (7, False)])
def test_a_rank_whose_call_has_not_returned_is_inside_of_the_layer(seq: int, *, sets_up: bool) -> None:
    others = [on_device(started=True, seq=seq, group="5")] * 3
    found = judge_records(*others, on_device(started=False, seq=seq, group="5", is_inside=True))
    assert said(found) == ("RankCommHang", "network", "low", (3,), "4")
    assert f"still inside of the call of all_reduce, collective {seq} of group" in found.summary
    assert ("sets up a communicator" in found.summary) is sets_up


@pytest.mark.parametrize(
    "starts",
    [(False,) * 4, (True,) * 4, (None,) * 4, (None, None, None, False), (False, False, False, True)],
)
def test_starts_that_set_no_minority_apart_name_nobody(starts: tuple[bool | None, ...]) -> None:
    found = judge_records(*(on_device(started=one) for one in starts))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_a_rank_that_is_held_up_in_an_older_collective_does_not_hold_up_the_others() -> None:
    members = {"5": (2, 3)}
    pair = call(seq=1, group="5", ended=False, started=True)
    late = a_record(*steps(3), pair, call(seq=4, ended=False, started=False), members=members)
    free = a_record(*steps(3), call(seq=4, ended=False, started=True), members=members)
    both = a_record(*steps(3), pair, call(seq=4, ended=False, started=True), members=members)
    assert judge_records(free, free, both, late).culprits == ()


def test_a_rank_that_is_missing_goes_before_one_whose_device_has_not_begun() -> None:
    found = judge_records(on_device(started=True), on_device(started=False), a_record(*steps(3)))
    assert found.culprits == (2,)


# ---- row 7: times inside of records -----------------------------------------------------------------------

SECOND = 1000 * MS


def piled_up(
    *after: int, every: int = 1, before: int = 20, op: str = "all_reduce", ended: bool = False
) -> FlightRecord:
    """A rank in a collective that called others so many seconds later, after steps of ``every`` seconds."""
    done = [call(seq=seq, at=seq * every * SECOND) for seq in range(1, before + 1)]
    began = (before + 1) * every
    held = call(seq=before + 1, ended=False, at=began * SECOND)
    later = [
        call(op, before + 2 + at, ended=ended, at=(began + seconds) * SECOND)
        for at, seconds in enumerate(after)
    ]
    return a_record(*done, held, *later, status={"0": (before + 1 + len(after), before)})


@pytest.mark.parametrize(
    ("after", "severity"), [((40,), "warning"), ((1, 95, 475), "error"), ((0, 200), "error")]
)
def test_calls_made_long_after_prove_that_nothing_ended(after: tuple[int, ...], severity: str) -> None:
    found = judge_records(piled_up(*after), piled_up(), piled_up())
    assert said(found) == ("RankCommHang", "network", "low", (), "7")
    assert found.severity == severity
    assert f"nothing ended for {after[-1]} s, while ranks called further operations" in found.summary
    assert "healthy" not in found.summary
    assert {one.role for one in found.ranks} == {"victim"}
    assert any("before, they were at most 1.0 s apart" in one for one in (e.fact for e in found.evidence))


@pytest.mark.parametrize(
    "record",
    [
        piled_up(20),
        piled_up(60, every=25),
        piled_up(475, every=200),
        piled_up(475, before=2),
        piled_up(),
        a_record(
            *steps(30),
            call(seq=31, ended=False, at=-1_795_968_338_000_000_000),
            call(seq=32, ended=False, at=900 * SECOND),
        ),
    ],
)
def test_what_the_job_s_own_pauses_explain_may_be_a_healthy_moment(record: FlightRecord) -> None:
    found = judge_records(record, record)
    assert (found.verdict, found.rule) == ("Unknown", "none")
    assert "a moment of a healthy job" in found.summary


def test_what_ended_in_another_group_meanwhile_is_movement() -> None:
    moved = call(seq=1, group="9", at=(21 + 470) * SECOND)
    base = piled_up(475)
    record = a_record(*base.entries[:-1], moved, base.entries[-1], status={"0": (22, 20), "9": (1, 1)})
    assert judge_records(record, record).verdict == "Unknown"


def test_a_rank_that_came_late_shortens_what_is_proven() -> None:
    late = piled_up(every=1)
    moved = msgspec.structs.replace(late.entries[-1], created_ns=late.entries[-1].created_ns + 470 * SECOND)
    found = judge_records(piled_up(475), a_record(*late.entries[:-1], moved, status={"0": (21, 20)}))
    assert found.verdict == "Unknown"


# ---- exits that came of a hang ----------------------------------------------------------------------------


def judge_ended(records: list[FlightRecord | None], codes: dict[int, int]) -> Diagnosis:
    """Records of ranks of which some have ended since."""
    job = recorded_job(*records)
    ranks = [
        msgspec.structs.replace(rank, exit=ExitFacts(codes[rank.rank])) if rank.rank in codes else rank
        for rank in job.ranks
    ]
    return diagnose(
        (msgspec.structs.replace(job, ranks=tuple(ranks)), None),
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T16:40:00Z",
    )


@pytest.mark.parametrize(
    "codes", [{0: -6}, {0: -6, 1: -6, 3: -6}, {0: -6, 1: -6, 2: -6, 3: -6}, {1: -6, 2: -15, 3: -15}]
)
def test_a_hang_that_the_records_show_goes_before_the_aborts_that_it_led_to(codes: dict[int, int]) -> None:
    found = judge_ended([inside(50), inside(50), a_record(*steps(49)), inside(50)], codes)
    assert (found.verdict, found.culprits, found.rule) == ("RankNonCommHang", (2,), "4")
    assert found.summary.endswith("ended because of it")
    assert [one.fact for one in found.evidence if one.source == "exit"] != []
    assert found.ranks[2].role == "culprit"


@pytest.mark.parametrize(
    ("records", "codes"),
    [
        ([inside(50), inside(50), None, inside(50)], {2: -6}),  # it aborted by itself: no record
        ([inside(50), inside(50), a_record(*steps(49)), inside(50)], {2: -9, 0: -6}),
        ([inside(50), inside(50), a_record(*steps(49)), inside(50)], {0: -15, 1: -15}),
        ([inside(50), a_record(*steps(50))], {0: 1}),
        ([a_record(*steps(50)), a_record(*steps(50))], {0: -6}),  # the records show no wait
    ],
)
def test_other_ends_are_the_cause(records: list[FlightRecord | None], codes: dict[int, int]) -> None:
    assert judge_ended(records, codes).verdict == "Exited"


# ---- gloo's messages, which no record has -----------------------------------------------------------------


def staged(stages: int, *, started: bool | None = None, held_by_pair: bool = True) -> list[FlightRecord]:
    """A pipeline of two ranks a stage and two replicas; in the second replica stage 0 is stuck in its pair.

    Rank 2 is stuck, and rank 3 waits for it; all stages of the first replica wait for the second's.
    """
    records: list[FlightRecord] = []
    for stage in range(stages):
        base = 4 * stage
        for place in range(4):
            replicas = (base + place % 2, base + place % 2 + 2)
            first = base + place // 2 * 2
            across, pair = f"dp{replicas[0]}", f"tp{first}"
            members = {across: replicas, pair: (first, first + 1)}
            calls = [call(seq=1, group=name, started=started) for name in (across, pair)]
            if place < 2:
                calls.append(call(seq=2, group=across, ended=False, started=started))
            elif held_by_pair and base + place == 3:
                calls.append(call(seq=2, group=pair, ended=False, started=started))
            records.append(a_record(*calls, members=members, default=()))
    return records


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_that_may_wait_in_messages_of_gloo_are_not_called_stuck(stages: int) -> None:
    found = judge_records(*staged(stages))
    assert said(found) == ("RankNonCommHang", "none", "low", (2,), "4")
    others = "ranks 6-7" if stages == 2 else "ranks 6-7,10-11"
    note = f"{others} have not come either; gloo records no sends and receives: they may wait in one"
    assert note in found.summary
    assert "6-7 are stuck" not in found.summary
    assert (found.ranks[4].waits_for, found.ranks[1].waits_for) == ((6,), (2,))


def test_where_no_end_holds_up_more_than_the_others_all_are_named_and_the_messages_mentioned() -> None:
    found = judge_records(*staged(2, held_by_pair=False))
    assert found.culprits == (2, 3, 6, 7)
    assert "gloo records no sends and receives: some of them may wait in one" in found.summary


def test_nccl_records_its_messages() -> None:
    found = judge_records(*staged(2, started=True))
    assert found.culprits == (2, 6, 7)
    assert "gloo" not in found.summary


def test_ranks_that_one_collective_lacks_are_missing_together() -> None:
    found = judge_records(inside(), inside(), a_record(*steps(3)), a_record(*steps(3)))
    assert found.culprits == (2, 3)
    assert "gloo" not in found.summary
