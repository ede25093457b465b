"""From a pair of snapshots to a diagnosis, rule by rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.classify_factory import (
    ARank,
    a_job,
    a_rank,
    judge,
    judge_still,
    native,
    stdlib,
    torch_frame,
    user,
)

from rankscope.diag.classify import communicating_ranks, load_catalogue
from rankscope.diag.model import ChildSnapshot, Diagnosis, ExitFacts, Frame, JobSnapshot, ThreadStack

LOADER = "torch/utils/data/dataloader.py"
LOADER_WAIT = (
    stdlib("_PollLikeSelector.select", "selectors.py", 415),
    stdlib("wait", "multiprocessing/connection.py", 947),
    torch_frame("_MultiProcessingDataLoaderIter._try_get_data", LOADER, 1291),
    torch_frame("_BaseDataLoaderIter.__next__", LOADER, 725),
    user("train", 63),
)


def waiting(*ranks: int, seq: int | None = None) -> list[ARank]:
    return [a_rank(rank).waiting_in(seq=seq) for rank in ranks]


def loading(rank: int = 2) -> ARank:
    return a_rank(rank).stuck_in(user("load_batch", 8), wchan="hrtimer_nanosleep")


def said(found: Diagnosis) -> tuple[str, str, str, tuple[int, ...], str]:
    return found.verdict, found.kind, found.confidence, found.culprits, found.rule


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


def test_a_stale_beat_means_that_the_gil_is_held_in_c() -> None:
    found = judge_still(*waiting(0, 1), a_rank(2).stuck_in(user("call", 5)).but(beat=9.0))
    assert said(found) == ("RankNonCommHang", "native_gil", "high", (2,), "8")


# ---- rule 0: the job moves --------------------------------------------------------------------------------


def test_a_step_between_the_snapshots_is_health() -> None:
    found = judge(
        a_job(*(rank.but(step=10) for rank in (*waiting(0, 1), loading()))),
        a_job(*(rank.but(step=11) for rank in (*waiting(0, 1), loading())), seconds=4.0),
    )
    assert said(found) == ("Healthy", "none", "high", (), "0")
    assert (found.severity, found.stacks != ()) == ("none", True)
    assert {one.state for one in found.ranks} == {"running"}


def test_a_collective_completed_between_the_snapshots_is_health() -> None:
    found = judge(
        a_job(*waiting(0, 1, seq=5), loading().at(4)),
        a_job(*waiting(0, 1, seq=6), loading().at(5), seconds=4.0),
    )
    assert (found.verdict, found.rule) == ("Healthy", "0")


def test_a_rank_that_left_its_wait_is_health_without_a_page() -> None:
    found = judge(
        a_job(*waiting(0, 1, 2)),
        a_job(*waiting(0, 1), a_rank(2).stuck_in(user("forward", 7)).but(cpu=0.9), seconds=4.0),
    )
    assert (found.verdict, found.severity) == ("Healthy", "none")


def test_a_rank_that_began_to_wait_in_between_leaves_it_open() -> None:
    found = judge(a_job(*waiting(0), loading(1), loading()), a_job(*waiting(0, 1), loading(), seconds=4.0))
    assert (found.verdict, found.severity) == ("Unknown", "info")


def test_waits_that_end_and_begin_again_while_the_others_move_are_health() -> None:
    stirred = [rank.but(switches=20.0) for rank in waiting(0, 1)]
    before, after = user("forward", 7), user("data", 9)
    found = judge(
        a_job(*stirred, a_rank(2).stuck_in(before)),
        a_job(*stirred, a_rank(2).stuck_in(after).but(cpu=0.9), seconds=4.0),
    )
    assert found.verdict == "Healthy"


def test_a_slow_loader_in_a_job_that_moves_is_suspected_only() -> None:
    stirred = [rank.but(switches=20.0) for rank in waiting(0, 1)]
    assert judge_still(*stirred, loading().but(switches=10.0)).verdict == "Unknown"
    numbered = [rank.but(switches=20.0) for rank in waiting(0, 1, seq=7)]
    assert judge_still(*numbered, loading().at(6).but(switches=10.0)).verdict == "RankNonCommHang"


def test_nobody_waits_and_everyone_works_is_no_hang() -> None:
    found = judge_still(*(a_rank(rank).stuck_in(user("forward", 7)).but(cpu=0.9) for rank in range(4)))
    assert (found.verdict, found.severity) == ("Healthy", "none")


# ---- rule 1: ended ----------------------------------------------------------------------------------------


def ended(rank: int, code: int | None, message: str = "", ago: float | None = None) -> ARank:
    return a_rank(rank).but(state=None, exit=ExitFacts(code, message, ago))


def test_the_first_to_end_is_the_culprit_and_terminated_survivors_are_not() -> None:
    found = judge_still(ended(0, -15, ago=1.0), ended(1, -9, ago=2.0), ended(2, -15, ago=1.0))
    assert said(found) == ("Exited", "dead", "high", (1,), "1")
    assert found.summary == "rank 1 was killed by SIGKILL; ranks 0,2 ended after it"
    assert [one.role for one in found.ranks] == ["victim", "culprit", "victim"]
    assert found.unobserved == ()


def test_a_lost_connection_is_a_consequence_even_when_it_ended_first() -> None:
    closed = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:64144"
    found = judge_still(ended(0, 1, closed, ago=2.0), ended(1, 1, "ValueError: bad batch", ago=2.0))
    assert found.culprits == (1,)
    assert found.summary.startswith("rank 1 ended with exit code 1: ValueError: bad batch")


def test_ranks_that_still_wait_for_the_dead_one_are_its_victims() -> None:
    found = judge_still(*waiting(0, 2), ended(1, 5))
    assert (found.verdict, found.culprits, found.severity) == ("Exited", (1,), "error")
    assert found.ranks[0].waits_for == (1,)
    assert found.ranks[1].state == "exited"


def test_a_zombie_has_ended() -> None:
    """How it ended nobody knows: that it was waited for is all there is."""
    assert said(judge_still(*waiting(0), a_rank(1).but(state="Z"))) == ("Exited", "dead", "low", (1,), "1")


def test_failures_at_the_same_moment_are_a_tie() -> None:
    found = judge_still(ended(0, 1, "A", ago=2.0), ended(1, 1, "B", ago=2.0))
    assert (found.culprits, found.confidence) == ((0, 1), "low")


def test_a_job_ended_from_outside_has_no_culprit() -> None:
    found = judge_still(ended(0, -15), ended(1, -15))
    assert (found.verdict, found.culprits, found.severity) == ("Exited", (), "info")


def test_a_job_whose_ranks_all_finished_is_healthy() -> None:
    assert judge_still(ended(0, 0), ended(1, 0)).verdict == "Healthy"


def test_a_rank_that_left_early_is_waited_for() -> None:
    assert said(judge_still(*waiting(0, 2), ended(1, 0))) == ("Exited", "exit", "medium", (1,), "1")


def test_a_rank_that_hangs_at_its_exit_is_named_after_the_others_left() -> None:
    hung = a_rank(1).but(frames=(stdlib("_shutdown", "threading.py", 1590),))
    assert said(judge_still(ended(0, 0), hung)) == ("RankNonCommHang", "exit", "medium", (1,), "10")


# ---- rule 2: frozen ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["T", "D", "t"])
def test_a_frozen_rank_is_the_culprit_without_a_stack(state: str) -> None:
    frozen = a_rank(1).but(state=state, wchan="kernel_clone").unseen("state " + state)
    found = judge_still(*waiting(0, 2), frozen)
    assert said(found) == ("RankNonCommHang", "frozen", "high", (1,), "2")
    assert any(f"state {state}" in one.fact and one.rank == 1 for one in found.evidence)
    assert [(one.rank, one.reason) for one in found.unobserved] == [(1, "state " + state)]


def test_a_moment_in_the_kernel_is_not_frozen() -> None:
    found = judge(
        a_job(*waiting(0, 2), loading(1)), a_job(*waiting(0, 2), loading(1).but(state="D"), seconds=4.0)
    )
    assert found.kind == "data_loading"


def test_a_job_that_was_stopped_has_no_culprit() -> None:
    found = judge_still(*(a_rank(rank).but(state="T") for rank in range(3)))
    assert (found.kind, found.severity, found.culprits) == ("frozen", "info", ())
    assert "stopped by a signal" in found.summary


def test_all_ranks_blocked_in_the_kernel_are_a_common_cause() -> None:
    found = judge_still(
        *(a_rank(rank).stuck_in(user("read", 4)).but(state="D", wchan="nfs_wait") for rank in range(2))
    )
    assert (found.kind, found.culprits) == ("storage", ())


# ---- rules 4 to 6: sequence numbers -----------------------------------------------------------------------


def test_who_has_not_entered_the_open_collective_is_named_by_sequence_number() -> None:
    found = judge_still(*waiting(0, 1, 3, seq=7), loading().at(6))
    assert said(found) == ("RankNonCommHang", "data_loading", "high", (2,), "4")
    assert any("has not entered collective 7 of group 0" in one.fact for one in found.evidence)


def test_a_rank_without_a_stack_is_named_by_sequence_number() -> None:
    found = judge_still(*waiting(0, 1, 3, seq=7), a_rank(2).at(6).unseen())
    assert (found.culprits, found.confidence, found.rule) == ((2,), "medium", "4")
    assert found.unobserved[0].reason == "ptrace denied"


def test_a_chain_of_waits_is_walked_to_its_end() -> None:
    first = a_rank(0).waiting_in().at(5, completed=4, group="a", size=2)
    second = a_rank(1).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    third = loading().at(8, group="b", size=2)
    found = judge_still(first, second, third)
    assert (found.culprits, found.kind) == ((2,), "data_loading")
    assert found.ranks[0].waits_for == (2,)
    assert found.ranks[1].role == "victim"


def test_a_circle_of_waits_is_an_order_deadlock() -> None:
    left = a_rank(0).waiting_in().at(5, completed=4, group="a", size=2).at(8, group="b", size=2)
    right = a_rank(1).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    found = judge_still(left, right)
    assert said(found) == ("RankNonCommHang", "order_deadlock", "high", (0, 1), "5")
    assert "rank 0 waits for rank 1, rank 1 waits for rank 0" in found.summary
    assert found.ranks[0].waits_for == (1,)


def test_a_rank_that_only_started_a_collective_asynchronously_does_not_wait() -> None:
    stuck = loading(1).at(5, completed=4, group="a", size=2).at(8, group="b", size=2)
    other = a_rank(0).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    assert judge_still(other, stuck).culprits == (1,)


def test_ranks_that_do_not_list_a_group_are_not_missing_from_it() -> None:
    pair = [a_rank(rank).waiting_in().at(3, completed=2, group="tp", size=2) for rank in (0,)]
    late = loading(1).at(2, group="tp", size=2)
    bystander = a_rank(2).waiting_in().at(9, group="0", size=3)
    found = judge_still(*pair, late, bystander)
    assert found.culprits == (1,)
    assert found.ranks[2].role == "bystander"


def test_a_collective_that_some_finished_is_the_layer_s_fault() -> None:
    done = a_rank(0).waiting_in("barrier").at(7, size=3)
    found = judge_still(done, *(rank.but(groups=()).at(7, completed=6, size=3) for rank in waiting(1, 2)))
    assert said(found) == ("RankCommHang", "network", "medium", (1, 2), "6")
    assert found.severity == "error"


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


# ---- rules 10, 11 -----------------------------------------------------------------------------------------


def test_all_ranks_in_one_place_outside_communication_are_a_common_cause() -> None:
    found = judge_still(*(loading(rank) for rank in range(3)))
    assert said(found) == ("RankNonCommHang", "data_loading", "high", (), "10")
    assert "no minority" in found.summary
    assert found.location is not None
    assert found.location.function == "load_batch"


def test_ranks_in_different_places_outside_communication_are_not_known() -> None:
    found = judge_still(*(a_rank(rank).stuck_in(user("train", 10 + rank)) for rank in range(3)))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_who_has_not_arrived_at_start_up_is_named() -> None:
    inside = (
        torch_frame("_new_process_group_helper", "torch/distributed/distributed_c10d.py", 2169),
        torch_frame("init_process_group", "torch/distributed/distributed_c10d.py", 1899),
        user("init", 31),
    )
    late = a_rank(1).stuck_in(user("prepare", 5), wchan="hrtimer_nanosleep")
    found = judge_still(a_rank(0).stuck_in(*inside), late, a_rank(2).stuck_in(*inside))
    assert said(found) == ("RankNonCommHang", "startup", "high", (1,), "11")
    begun = [a_rank(0).stuck_in(*inside), late, a_rank(2).stuck_in(*inside)]
    assert judge_still(*begun, trained=False).confidence == "medium"
    assert found.summary.endswith("ranks 0,2 wait for it in init_process_group")


def test_all_ranks_at_the_store_with_one_unseen_do_not_accuse_it() -> None:
    inside = (torch_frame("init_process_group", "torch/distributed/distributed_c10d.py"), user("init", 31))
    found = judge(a_job(a_rank(0).stuck_in(*inside), world_size=2))
    assert (found.verdict, found.culprits, found.kind) == ("Unknown", (), "startup")
    assert "rank 1 could not be observed" in found.summary


def test_a_wait_on_the_store_is_read_from_the_user_s_line() -> None:
    asking = a_rank(0).stuck_in(user("sync", 12), wchan="poll_schedule_timeout.constprop.0")
    late = a_rank(1).stuck_in(user("compute", 20), wchan="hrtimer_nanosleep")
    found = judge_still(asking, late, lines={12: 'st.get("done")', 20: "time.sleep(60)"})
    assert said(found) == ("RankNonCommHang", "store_wait", "high", (1,), "11")


# ---- kinds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stuck", "kind"),
    [
        (a_rank(1).stuck_in(*LOADER_WAIT, wchan="poll_schedule_timeout"), "data_loading"),
        (a_rank(1).stuck_in(torch_frame("_save", "torch/serialization.py"), user("f", 4)), "checkpoint"),
        (
            a_rank(1).stuck_in(torch_frame("load", "torch/serialization.py"), user("Set.__getitem__", 4)),
            "data_loading",
        ),
        (a_rank(1).stuck_in(torch_frame("wait", "torch/utils/file_baton.py"), user("f", 4)), "compile"),
        (a_rank(1).stuck_in(stdlib("Popen._try_wait", "subprocess.py"), user("f", 4)), "child_process"),
        (a_rank(1).stuck_in(stdlib("Event.wait", "threading.py"), user("f", 4)), "lock"),
        (a_rank(1).stuck_in(user("guarded", 85), wchan="futex_do_wait"), "lock"),
        (a_rank(1).stuck_in(user("f", 4), wchan="anon_pipe_read"), "storage"),
        (a_rank(1).stuck_in(user("f", 4), wchan="sk_wait_data"), "network"),
        (a_rank(1).stuck_in(user("f", 4), wchan="hrtimer_nanosleep"), "user_code"),
        (a_rank(1).stuck_in(user("save_checkpoint", 4), wchan="anon_pipe_write"), "checkpoint"),
        (a_rank(1).but(frames=(stdlib("_shutdown", "threading.py", 1590),)), "exit"),
    ],
)
def test_the_kind_is_what_the_culprit_is_doing(stuck: ARank, kind: str) -> None:
    found = judge_still(*waiting(0, 2), stuck)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", kind, (1,))


def test_a_lock_is_read_from_the_source_line_before_the_words_of_a_name() -> None:
    stuck = a_rank(1).stuck_in(user("load_batch", 85), wchan="futex_do_wait")
    assert judge_still(*waiting(0, 2), stuck, lines={85: "    with cache_lock:"}).kind == "lock"


def test_who_may_hold_the_lock_is_in_the_evidence() -> None:
    holder = ThreadStack(99, "CheckpointWriter", (user("holder", 77),))
    stuck = a_rank(1).stuck_in(user("guarded", 85), wchan="futex_do_wait").but(others=(holder,))
    found = judge_still(*waiting(0, 2), stuck)
    assert any("thread CheckpointWriter in holder (train.py:77)" in one.fact for one in found.evidence)


def test_a_loader_worker_that_hangs_is_followed_to_its_line() -> None:
    frames = (
        user("Shards.read", 57),
        torch_frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 54),
        torch_frame("_worker_loop", "torch/utils/data/_utils/worker.py", 374),
        stdlib("Popen._launch", "multiprocessing/popen_fork.py", 71),
        user("train", 63),
    )
    idle = (stdlib("Queue.get", "multiprocessing/queues.py"), frames[2], frames[3], frames[4])
    children = tuple(
        ChildSnapshot(pid, None, (ThreadStack(pid, "MainThread", stack, is_main=True),))
        for pid, stack in ((80, idle), (81, frames))
    )
    found = judge_still(*waiting(0, 2), a_rank(1).stuck_in(*LOADER_WAIT).but(children=children))
    assert (found.kind, found.culprits) == ("data_loading", (1,))
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("Shards.read", 57)
    assert any("child process 81" in one.fact for one in found.evidence)


# ---- the deciding thread and waits without a frame --------------------------------------------------------


def test_the_thread_that_holds_the_gil_while_it_sleeps_decides() -> None:
    holder = ThreadStack(99, "NativeHolder", (user("<lambda>", 265),), holds_gil=True, active=False)
    stuck = a_rank(1).stuck_in(stdlib("Event.wait", "threading.py"), user("f", 4)).but(others=(holder,))
    found = judge_still(*waiting(0, 2), stuck)
    assert (found.kind, found.culprits) == ("native_gil", (1,))
    assert found.location is not None
    assert found.location.line == 265


def test_a_collective_in_another_thread_decides_while_main_is_in_backward() -> None:
    sync = ThreadStack(99, None, a_rank(0).waiting_in("reduce").frames)
    backward = (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("step", 9))
    victims = [a_rank(rank).stuck_in(*backward).but(others=(sync,)) for rank in (0, 1)]
    found = judge_still(*victims, loading())
    assert (found.culprits, found.ranks[0].position) == ((2,), "reduce")


def test_backward_waits_with_the_others_when_somebody_is_away() -> None:
    backward = (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("step", 9))
    found = judge_still(a_rank(0).stuck_in(*backward), a_rank(1).stuck_in(*backward), loading())
    assert (found.culprits, found.ranks[0].position) == ((2,), "backward")


def test_work_wait_is_read_from_the_line_or_from_native_frames() -> None:
    asleep = a_rank(1).stuck_in(user("step", 20), wchan="hrtimer_nanosleep")
    by_line = [a_rank(rank).stuck_in(user("step", 22), wchan="futex_do_wait") for rank in (0, 2)]
    assert judge_still(*by_line, asleep, lines={22: "w.wait()", 20: "time.sleep(9)"}).culprits == (1,)
    by_frame = [a_rank(rank).stuck_in(native("c10d::Work::wait"), user("step", 22)) for rank in (0, 2)]
    assert judge_still(*by_frame, asleep).culprits == (1,)


# ---- what could not be seen -------------------------------------------------------------------------------


def test_a_rank_that_was_not_observed_is_named_and_never_accused() -> None:
    found = judge_still(*waiting(0, 1), world_size=3)
    assert (found.verdict, found.culprits, found.observed) == ("Unknown", (), "0-1")
    assert [(one.rank, one.reason) for one in found.unobserved] == [(2, "no snapshot of this rank")]
    assert found.ranks[2].state == "unobserved"
    assert "rank 2 could not be observed" in found.summary


def test_a_rank_that_was_not_observed_lowers_the_confidence_in_another() -> None:
    assert judge_still(*waiting(0, 1), loading(), world_size=4).confidence == "medium"


@pytest.mark.parametrize("world_size", [0, 1])
def test_an_empty_job_is_not_known(world_size: int) -> None:
    assert judge(a_job(world_size=world_size)).verdict == "Unknown"


def test_the_record_holds_the_folded_stacks_and_the_incident_s_time() -> None:
    found = judge_still(*waiting(0, 1, 3), loading())
    assert [(group.count, group.ranks) for group in found.stacks] == [(1, "2"), (3, "0-1,3")]
    assert (found.job, found.time, found.observed) == ("run-7", "2026-11-29T16:40:00Z", "0-3")


def test_communicating_ranks_are_those_that_wait() -> None:
    job = a_job(*waiting(0, 1, 3), loading())
    assert communicating_ranks(job, load_catalogue()) == {0, 1, 3}


def test_sleepers_that_nobody_watched_are_not_called_hung() -> None:
    """Two looks four seconds apart cannot tell a hang from a server that waits for requests."""
    ranks = [a_rank(rank).stuck_in(user("serve", 7)) for rank in range(3)]
    found = judge_still(*ranks, silent=None, trained=False)
    assert (found.verdict, found.severity, found.culprits) == ("Unknown", "info", ())
    assert "ranks 0-2 stand in serve (train.py:7); nothing moved in 4 s" in found.summary
    assert judge_still(*ranks).verdict == "RankNonCommHang"


@pytest.mark.parametrize("silent", [None, 3600.0])
def test_a_wait_in_a_job_that_was_never_seen_to_move_is_named_with_medium_confidence(
    silent: float | None,
) -> None:
    found = judge_still(*waiting(0, 1), loading(), silent=silent, trained=False)
    assert (found.verdict, found.confidence, found.culprits) == ("RankNonCommHang", "medium", (2,))


# ---- only what moved can hang -----------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_that_never_moved_are_not_called_hung_however_long_they_are_silent(world_size: int) -> None:
    ranks = [a_rank(rank).stuck_in(user("serve", 7)).at(-1, size=3) for rank in range(world_size)]
    found = judge_still(*ranks, silent=3600.0, trained=False)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "nothing moved in 3600 s" in found.summary
    assert judge_still(*ranks).verdict == "RankNonCommHang"


def test_a_completed_collective_shows_that_the_job_moved() -> None:
    ranks = [loading(rank).at(3, size=2) for rank in range(2)]
    assert judge_still(*ranks, trained=False).confidence == "high"


def test_a_first_read_that_is_blocked_in_the_kernel_is_not_sure_before_the_job_moved() -> None:
    frozen = a_rank(1).but(state="D").unseen("state D")
    assert judge_still(*waiting(0), frozen, trained=False).confidence == "medium"
    assert judge_still(*waiting(0), a_rank(1).but(state="T").unseen("T"), trained=False).confidence == "high"


def test_a_suspicion_tells_how_long_a_watcher_saw_no_progress() -> None:
    busy = a_rank(1).stuck_in(user("evaluate", 36)).but(cpu=0.9)
    assert "evaluate (train.py:36) for 35 s" in judge_still(*waiting(0), busy, silent=35.0).summary
    assert "evaluate (train.py:36) for 4 s" in judge_still(*waiting(0), busy, silent=None).summary


# ---- ranks that finished before the others ----------------------------------------------------------------


@pytest.mark.parametrize("code", [0, None])
def test_a_rank_that_finished_does_not_hide_the_one_that_hangs(code: int | None) -> None:
    left = ended(2, code).at(20, size=3)
    waits = a_rank(0).waiting_in().at(20, size=3).at(31, completed=30, group="1", size=2)
    hangs = a_rank(1).stuck_in(user("stuck", 53)).at(20, size=3).at(30, group="1", size=2)
    assert said(judge_still(waits, hangs, left)) == ("RankNonCommHang", "user_code", "high", (1,), "4")
    assert judge_still(*waiting(0), loading(), ended(1, code)).culprits == (2,)


@pytest.mark.parametrize("code", [0, None])
def test_a_rank_that_finished_is_not_blamed_for_a_group_without_it(code: int | None) -> None:
    waits = [
        a_rank(rank).waiting_in().at(20, size=3).at(31, completed=30, group="1", size=2) for rank in (0, 1)
    ]
    found = judge_still(*waits, ended(2, code).at(20, size=3))
    assert said(found) == ("RankCommHang", "network", "low", (), "7")


def test_an_unknown_exit_code_names_with_low_confidence() -> None:
    found = judge_still(*waiting(0, 2, seq=7), ended(1, None).at(6))
    assert said(found) == ("Exited", "dead", "low", (1,), "1")
    assert "its exit code is unknown; ranks 0,2 wait for it" in found.summary
    assert judge_still(*waiting(0, 2, seq=7), ended(1, 0).at(6)).confidence == "medium"


def test_a_rank_that_left_is_named_by_numbers_while_another_is_busy_alone() -> None:
    logs = a_rank(2).stuck_in(user("log", 4)).at(7, completed=7, size=3)
    found = judge_still(a_rank(0).waiting_in().at(7, completed=6, size=3), ended(1, 0).at(6, size=3), logs)
    assert (found.verdict, found.kind, found.culprits) == ("Exited", "exit", (1,))


def test_a_rank_that_hangs_at_its_exit_is_named_though_the_others_ends_are_unknown() -> None:
    hung = a_rank(1).but(frames=(stdlib("_shutdown", "threading.py", 1590),))
    found = judge_still(ended(0, None), hung)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "exit", (1,))
    assert judge_still(ended(0, None), hung, trained=False).verdict == "Unknown"


def test_how_a_job_ended_is_not_known_without_its_codes() -> None:
    assert judge_still(ended(0, 0), ended(1, None)).verdict == "Unknown"


CUT = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537]"
    " Read error [127.0.0.1]:"
)


@pytest.mark.parametrize("tail", ["3288: Connec", "28046: Conne", "", "3288: Connection reset by peer"])
def test_a_rank_that_left_with_0_is_why_the_others_lost_their_connection(tail: str) -> None:
    found = judge_still(ended(0, 1, CUT + tail, ago=0.1), ended(1, 0, ago=3.8), ended(2, -15, ago=0.0))
    assert said(found) == ("Exited", "exit", "medium", (1,), "1")
    assert found.summary == "rank 1 ended with exit code 0 before the others; ranks 0,2 ended after it"
    assert found.ranks[0].waits_for == (1,)


def test_a_rank_that_finished_after_a_failure_or_beside_one_with_a_cause_is_not_named() -> None:
    later = judge_still(ended(0, 1, CUT, ago=3.0), ended(1, 0, ago=1.0))
    assert (later.culprits, later.confidence) == ((0,), "medium")
    own = judge_still(ended(0, 1, "ValueError: bad batch", ago=1.0), ended(1, 0, ago=3.0))
    assert (own.kind, own.culprits, own.confidence) == ("dead", (0,), "high")
    assert judge_still(ended(0, -15, ago=1.0), ended(1, 0, ago=3.0)).culprits == ()


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        ("x" * 110 + " Connection clo", True),
        ("x" * 110 + " Conn", False),
        ("RuntimeError: lost Connection", False),
        ("[gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 320000 vs 32", False),
    ],
)
def test_a_message_that_was_cut_is_still_read(message: str, is_one: bool) -> None:
    assert load_catalogue().is_consequence(message) is is_one


# ---- training in a thread ---------------------------------------------------------------------------------

BACKWARD = (
    torch_frame("_engine_run_backward", "torch/autograd/graph.py"),
    user("train", 19),
    user("in_thread", 263),
)
JOIN = (
    stdlib("Thread._wait_for_tstate_lock", "threading.py", 1139),
    stdlib("Thread.join", "threading.py", 1119),
    user("main", 320),
)
GET = (stdlib("Condition.wait", "threading.py", 327), stdlib("Queue.get", "queue.py", 171), user("main", 320))


def in_thread(rank: int, *frames: Frame, main: tuple[Frame, ...] = JOIN) -> ARank:
    trainer = ThreadStack(90 + rank, "trainer", frames, active=False)
    return a_rank(rank).stuck_in(*main).but(others=(trainer,))


@pytest.mark.parametrize("main", [JOIN, GET])
def test_a_thread_that_the_main_thread_waits_for_decides(main: tuple[Frame, ...]) -> None:
    waits = [in_thread(rank, *BACKWARD, main=main) for rank in (0, 2)]
    stuck = in_thread(1, user("in_thread", 262), main=main)
    for numbers in (False, True):
        ranks = [rank.at(21, completed=20, size=3) if numbers else rank for rank in waits]
        found = judge_still(ranks[0], stuck.at(20, size=3) if numbers else stuck, ranks[1])
        assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "user_code", (1,))
        assert found.location is not None
        assert found.location.line == 262
        assert found.ranks[0].position == "backward"
        assert any("main thread in main (train.py:320)" in one.fact for one in found.evidence)


def test_ranks_that_spin_for_a_collective_are_victims_of_the_one_that_does_nothing() -> None:
    spinning = [
        a_rank(rank).stuck_in(user("spin", 103)).but(cpu=1.0).at(21, completed=20, size=3) for rank in (0, 2)
    ]
    stuck = a_rank(1).stuck_in(user("load", 7)).at(20, size=3)
    found = judge_still(spinning[0], stuck, spinning[1])
    assert (found.verdict, found.culprits, found.confidence) == ("RankNonCommHang", (1,), "high")
    assert [rank.role for rank in found.ranks] == ["victim", "culprit", "victim"]
    working = stuck.but(cpu=1.0, gil=True, active=True)
    assert judge_still(spinning[0], working, spinning[1]).verdict == "Unknown"


def test_a_rank_in_backward_of_another_collective_went_another_way() -> None:
    """DDP's backward shows no collective, the page does."""
    odd = a_rank(1).stuck_in(torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("one", 15))
    circle = [rank.at(4, completed=3, size=3).at(36, group="1", size=3) for rank in waiting(0, 2)]
    found = judge_still(*circle, odd.at(3, size=3).at(37, completed=36, group="1", size=3))
    assert found.kind == "order_deadlock"
    assert 1 in found.culprits
    same = [rank.at(21, completed=20, size=3) for rank in waiting(0, 2)]
    found = judge_still(*same, odd.at(21, completed=20, size=3))
    assert (found.kind, found.culprits) == ("desync", (1,))


def test_a_rank_that_writes_to_a_slow_disk_is_not_frozen() -> None:
    writes = a_rank(1).stuck_in(user("save", 9)).but(state="D", io=5e6)
    assert judge_still(*waiting(0, 2), writes).verdict == "Unknown"
    found = judge_still(*waiting(0, 2), writes.but(io=0.0))
    assert (found.kind, found.confidence) == ("frozen", "high")


def test_ranks_that_spin_for_a_rank_in_a_loop_are_its_victims() -> None:
    spins = a_rank(0).stuck_in(user("spin", 103)).but(cpu=1.0).at(21, completed=20, size=2)
    loop = a_rank(1).stuck_in(user("load", 7)).but(cpu=1.0, gil=True, active=True).at(20, size=2)
    samples = tuple(a_job(loop, seconds=4.0 + at / 4, world_size=2) for at in range(20))
    found = judge(a_job(spins, loop), a_job(spins, loop, seconds=4.0), samples=samples)
    assert said(found) == ("RankNonCommHang", "python_loop", "medium", (1,), "4")
    assert found.ranks[0].role == "victim"


def test_a_reporter_that_sleeps_is_not_what_a_queue_waits_for() -> None:
    reporter = ThreadStack(90, "reporter", (user("report_forever", 40),), active=False)
    stuck = a_rank(1).stuck_in(*GET).but(others=(reporter,))
    found = judge_still(*waiting(0, 2), stuck, lines={40: "time.sleep(0.2)"})
    assert found.location is not None
    assert (found.culprits, found.location.function, found.location.line) == ((1,), "main", 320)


@pytest.mark.parametrize(("function", "kind"), [("next_batch", "data_loading"), ("work", "lock")])
def test_what_a_queue_is_waited_for_is_told_by_the_user_s_names(function: str, kind: str) -> None:
    queue = (stdlib("Condition.wait", "threading.py", 327), stdlib("Queue.get", "queue.py", 171))
    found = judge_still(*waiting(0, 2), a_rank(1).stuck_in(*queue, user(function, 9)))
    assert found.kind == kind


def test_numbers_win_where_it_cannot_be_told_which_thread_decides() -> None:
    metrics = ThreadStack(80, "metrics", (user("report", 5),), active=False)
    ranks = [in_thread(rank, user("in_thread", 262)) for rank in range(3)]
    several = [rank.but(others=(*rank.others, metrics)) for rank in ranks]
    found = judge_still(
        several[0].at(21, completed=20, size=3),
        several[1].at(20, size=3),
        several[2].at(21, completed=20, size=3),
    )
    assert (found.verdict, found.culprits, found.rule) == ("RankNonCommHang", (1,), "4")


def test_a_collective_that_one_has_not_entered_is_no_common_cause() -> None:
    found = judge_still(loading(0).at(21, completed=20, size=2), loading(1).at(20, size=2))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "no minority" not in found.summary
    assert any("rank 1 has not entered collective 21" in one.fact for one in found.evidence)


def test_a_lock_of_the_user_s_own_line_is_not_left_for_another_thread() -> None:
    holder = ThreadStack(99, "writer", (user("holder", 77),))
    stuck = a_rank(1).stuck_in(user("guarded", 85), wchan="futex_do_wait").but(others=(holder,))
    found = judge_still(*waiting(0, 2), stuck, lines={85: "with cache_lock:"})
    assert found.location is not None
    assert (found.kind, found.location.line) == ("lock", 85)


# ---- helper threads and open collectives ------------------------------------------------------------------


def backward_with_helper(rank: int, *, gil: bool = False) -> ARank:
    helper = ThreadStack(80, "metrics", (user("report", 5),), holds_gil=gil, active=True)
    return a_rank(rank).stuck_in(*BACKWARD).but(others=(helper,), other_cpu=0.11)


@pytest.mark.parametrize("gil", [False, True])
def test_a_helper_thread_does_not_make_a_blocked_backward_compute(gil: bool) -> None:
    found = judge_still(backward_with_helper(0, gil=gil), a_rank(1).stuck_in(user("read", 32)))
    assert (found.verdict, found.culprits, found.ranks[0].role) == ("RankNonCommHang", (1,), "victim")
    assert found.ranks[0].position == "backward"


def test_a_job_is_not_healthy_while_a_collective_stays_open() -> None:
    busy = [a_rank(rank).stuck_in(user("forward", 7)).but(cpu=0.9) for rank in (0, 1)]
    assert judge_still(*busy).verdict == "Healthy"
    found = judge_still(busy[0].at(21, completed=20, size=2), busy[1].at(20, size=2))
    assert (found.verdict, found.ranks[1].state, found.ranks[0].state) == ("Unknown", "suspected", "running")


def test_a_rank_that_moved_is_no_health_while_a_collective_stays_open() -> None:
    before = [rank.at(21, completed=20, size=2) for rank in waiting(0, 1)]
    away = a_rank(1).stuck_in(user("forward", 7)).but(cpu=0.9).at(21, completed=20, size=2)
    found = judge(a_job(*before), a_job(before[0], away, seconds=4.0))
    assert found.verdict == "Unknown"
    assert "collective 21 of group 0 stayed open" in found.summary


# ---- child processes, and ranks that were not seen --------------------------------------------------------


def in_child(rank: int, *frames: Frame) -> ARank:
    child = ChildSnapshot(70 + rank, None, (ThreadStack(70 + rank, "MainThread", frames, is_main=True),))
    parent = (stdlib("Popen._try_wait", "subprocess.py", 2004), user("launch", 363))
    return a_rank(rank).stuck_in(*parent).but(children=(child,))


@pytest.mark.parametrize("trained", [True, False])
def test_children_in_different_places_are_no_common_cause(trained: bool) -> None:
    found = judge_still(in_child(0, *waiting(0)[0].frames), in_child(1, user("sleeps", 38)), trained=trained)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "rank 0 stands in train_step (train.py:11); rank 1 stands in sleeps (train.py:38)" in found.summary
    same = judge_still(in_child(0, user("sleeps", 38)), in_child(1, user("sleeps", 38)))
    assert (same.verdict, same.kind) == ("RankNonCommHang", "child_process")


def test_one_of_three_ranks_shows_no_common_cause() -> None:
    found = judge_still(loading(1), world_size=3)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "no minority" not in found.summary
    assert "ranks 0,2 could not be observed" in found.summary


def test_numbers_of_processes_that_ended_meanwhile_name_nobody() -> None:
    ranks = [
        rank.unseen("the process has ended").but(state=None)
        for rank in (*waiting(0, seq=7), loading(1).at(6))
    ]
    assert said(judge_still(*ranks))[:4] == ("Unknown", "none", "low", ())
    assert judge_still(*waiting(0, seq=7), ranks[1]).verdict == "Unknown"
