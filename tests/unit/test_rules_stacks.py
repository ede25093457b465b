"""Rules 7 to 9: stacks without numbers, and how busy the ranks are that are waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.classify_factory import (
    ARank,
    a_job,
    a_rank,
    judge,
    judge_still,
    native,
    user,
)
from tests.rules_factory import (
    loading,
    said,
    waiting,
)

from rankscope.diag.model import ChildSnapshot, Diagnosis, Frame, JobSnapshot

# ---- rule 8: stacks ---------------------------------------------------------------------------------------


def test_a_rank_outside_of_the_collective_is_named_with_its_line() -> None:
    found = judge_still(*waiting(0, 1, 3), loading(), lines={8: "    time.sleep(1e6)"})
    assert said(found) == ("RankNonCommHang", "data_loading", "high", (2,), "8")
    assert (
        found.summary
        == "rank 2 is stuck in load_batch (train.py:8), data loading; ranks 0-1,3 wait for it in all_reduce"
    )
    assert found.severity == "warning"
    assert found.nodes == ("host-a",)
    assert found.location is not None
    assert (found.location.rank, found.location.function, found.location.line) == (2, "load_batch", 8)
    assert (found.location.file, found.location.source) == ("/workspace/train.py", "time.sleep(1e6)")


def test_every_rank_gets_a_role_a_state_and_whom_it_waits_for() -> None:
    found = judge_still(*waiting(0, 1, 3), loading())
    culprit = found.ranks[2]
    assert (culprit.role, culprit.state, culprit.rank_class) == ("culprit", "hung", "RankNonCommHang")
    victim = found.ranks[0]
    assert (victim.role, victim.state, victim.rank_class) == ("victim", "waiting", None)
    assert (victim.waits_for, victim.position, victim.node) == ((2,), "all_reduce", "host-a")


def test_a_single_dump_is_never_sure() -> None:
    found = judge(a_job(*waiting(0, 1, 3), loading(), facts=False))
    assert said(found) == ("RankNonCommHang", "data_loading", "medium", (2,), "8")
    assert any("single dump" in one.fact for one in found.evidence)


def test_a_rank_caught_running_in_a_single_dump_is_named_with_low_confidence() -> None:
    found = judge(a_job(*waiting(0, 1), a_rank(2).stuck_in(user("spin", 5)).but(gil=True, active=True)))
    assert said(found) == ("RankNonCommHang", "python_loop", "low", (2,), "8")


def test_a_process_that_changed_between_the_snapshots_gives_no_activity() -> None:
    before = a_job(*waiting(0, 1), loading().but(start_ticks=1, cpu=1.0))
    found = judge(before, a_job(*waiting(0, 1), loading(), seconds=4.0))
    assert (found.confidence, found.culprits) == ("medium", (2,))


# ---- activity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "busy",
    [
        a_rank(2).stuck_in(user("evaluate", 36)).but(cpu=0.9),
        a_rank(2).stuck_in(user("evaluate", 36)).but(io=50_000.0),
        a_rank(2).stuck_in(user("evaluate", 36)).but(children=(ChildSnapshot(77),), child_cpu={77: 0.5}),
    ],
    ids=["cpu", "io", "child"],
)
def test_a_sink_that_works_is_suspected_and_never_called_a_hang(busy: ARank) -> None:
    found = judge_still(*waiting(0, 1), busy)
    assert (found.verdict, found.severity, found.confidence) == ("Unknown", "info", "low")
    assert found.summary.startswith(
        "suspected, not confirmed: rank 2 has been computing in evaluate (train.py:36)"
    )
    assert found.summary.endswith("ranks 0-1 wait for it in all_reduce")
    assert found.culprits == ()
    assert found.ranks[2].state == "suspected"
    assert any(one.source == "/proc" for one in found.evidence)


def test_a_sink_that_only_ticks_is_a_poll_loop_with_medium_confidence() -> None:
    found = judge_still(*waiting(0, 1), a_rank(2).stuck_in(user("poll", 39)).but(switches=5.0))
    assert said(found) == ("RankNonCommHang", "python_loop", "medium", (2,), "8")


def test_the_switches_of_our_own_captures_do_not_make_a_sink_tick() -> None:
    found = judge_still(*waiting(0, 1), loading().but(switches=1.0))
    assert found.confidence == "high"


def test_victims_that_spin_do_not_excuse_a_quiet_sink() -> None:
    spinning = [rank.but(cpu=1.0) for rank in waiting(0, 1)]
    assert said(judge_still(*spinning, loading())) == ("RankNonCommHang", "data_loading", "high", (2,), "8")


def test_a_rank_that_prints_now_and_then_is_awake() -> None:
    polls = a_rank(2).stuck_in(user("poll", 5)).but(io=9.0)
    assert said(judge_still(*waiting(0, 1), polls)) == ("RankNonCommHang", "python_loop", "medium", (2,), "8")


@pytest.mark.parametrize(("look_bytes", "kind"), [(680, "user_code"), (0, "python_loop")])
def test_what_a_rank_wrote_to_answer_the_first_look_is_no_sign_of_life(look_bytes: int, kind: str) -> None:
    ranks = [*waiting(0, 1), a_rank(2).stuck_in(user("poll", 5)).but(step=5)]
    first, second = a_job(*ranks), a_job(*ranks, seconds=4.0)
    told = judge(writing(first, 0, look_bytes), writing(second, 680, look_bytes), silent=12.0)
    assert (told.culprits, told.kind) == ((2,), kind)


def writing(look: JobSnapshot, io_bytes: int, look_bytes: int) -> JobSnapshot:
    ranks = tuple(
        replace(rank, facts=replace(rank.facts, io_bytes=io_bytes, look_bytes=look_bytes))
        for rank in look.ranks
        if rank.facts
    )
    return replace(look, ranks=ranks)


def test_quick_samples_confirm_an_endless_python_loop() -> None:
    loop = a_rank(2).stuck_in(user("spin", 5)).but(cpu=1.0, gil=True, active=True)
    samples = tuple(a_job(loop, seconds=4.0 + at / 4, world_size=3) for at in range(20))
    pair = a_job(*waiting(0, 1), loop), a_job(*waiting(0, 1), loop, seconds=4.0)
    assert said(judge(*pair, samples=samples)) == ("RankNonCommHang", "python_loop", "medium", (2,), "8")
    severities = [judge(*pair, samples=samples, silent=silent).severity for silent in (13.0, 95.0)]
    assert severities == ["info", "warning"]
    moving = tuple(
        a_job(a_rank(2).stuck_in(user(f"work_{at % 3}", 5)).but(gil=True, active=True), world_size=3)
        for at in range(20)
    )
    assert judge(*pair, samples=moving).verdict == "Unknown"
    assert judge(*pair, samples=samples[:5]).verdict == "Unknown"


@pytest.mark.parametrize(("beat", "confidence"), [(9.0, "high"), (0.5, "medium")])
def test_a_thread_that_wakes_for_the_gil_only_polls_for_nothing(beat: float, confidence: str) -> None:
    ranks = (*waiting(0, 1), a_rank(2).stuck_in(user("call", 5)).but(beat=beat, switches=200.0))
    assert judge_still(*ranks).confidence == confidence


def test_a_stale_beat_means_that_the_gil_is_held_in_c() -> None:
    found = judge_still(*waiting(0, 1), a_rank(2).stuck_in(user("call", 5)).but(beat=9.0))
    assert said(found) == ("RankNonCommHang", "native_gil", "high", (2,), "8")


# ---- rules 7, 9: all in communication ---------------------------------------------------------------------


def test_all_ranks_in_one_collective_point_at_nobody() -> None:
    found = judge_still(*waiting(0, 1, 2))
    assert said(found) == ("RankCommHang", "network", "low", (), "7")


def test_a_single_dump_of_ranks_in_one_collective_is_not_known() -> None:
    assert judge(a_job(*waiting(0, 1, 2))).verdict == "Unknown"


def test_a_minority_in_another_collective_went_another_way() -> None:
    odd = a_rank(1).waiting_in("barrier", line=48)
    found = judge_still(*waiting(0, 2, 3), odd)
    assert said(found) == ("RankNonCommHang", "desync", "low", (1,), "9")
    numbered = [rank.at(5, completed=4) for rank in (*waiting(0, 2, 3), odd)]
    assert judge_still(*numbered).confidence == "medium"


def test_a_tie_names_both_sides() -> None:
    found = judge_still(a_rank(0).waiting_in("broadcast"), a_rank(1).waiting_in("all_reduce"))
    assert said(found) == ("RankNonCommHang", "desync", "low", (0, 1), "9")


def test_sends_and_receives_that_wait_for_each_other_are_not_known() -> None:
    found = judge_still(a_rank(0).waiting_in("send"), a_rank(1).waiting_in("recv"))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def sampled(*frames: Frame, native: Sequence[str] = ()) -> Diagnosis:
    loop = a_rank(2).stuck_in(*frames).but(cpu=1.0, gil=True, active=True)
    quick = [a_job(loop, seconds=4.0 + at / 4, world_size=3) for at in range(20)]
    closer = [
        a_job(loop.but(frames=(native_frame(name), *loop.frames)), seconds=9.0 + at, world_size=3)
        for at, name in enumerate(native)
    ]
    pair = a_job(*waiting(0, 1), loop), a_job(*waiting(0, 1), loop, seconds=4.0)
    return judge(*pair, samples=(*quick, *closer))


def native_frame(name: str) -> Frame:
    return native(name, "libpython3.11.so")


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["sre_ucs1_match", "sre_ucs1_match", "sre_ucs1_match"], "native_gil"),
        (["long_add", "unicode_hash", "long_add"], "python_loop"),
        (["PyNumber_Add", "PyNumber_Add", "PyNumber_Add"], "python_loop"),
        ([], "python_loop"),
    ],
)
def test_a_call_in_c_that_never_ends_is_no_loop_in_python(names: list[str], kind: str) -> None:
    found = sampled(user("is_sentence", 5), native=names)
    assert said(found) == ("RankNonCommHang", kind, "medium", (2,), "8")
