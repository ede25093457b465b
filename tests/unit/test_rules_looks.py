"""What one look shows, what several in a row do, and which thread of a rank is looked at."""

from __future__ import annotations

import msgspec
import pytest
from tests.classify_factory import ARank, a_job, a_rank, judge, native, stdlib, torch_frame, user
from tests.records_factory import a_record, call, steps

from rankscope.diag.model import Diagnosis, Frame, JobSnapshot, RankSnapshot, ThreadStack

GET = (stdlib("Queue.get", "queue.py", 171), user("fetch", 11))
SERVE = (user("serve", 6, "/workspace/telemetry.py"),)


def looked(*looks: JobSnapshot) -> Diagnosis:
    """The answer to whole looks in order."""
    return judge(looks[0], looks[-1], samples=looks[1:-1])


def look(*inside: bool, seconds: float = 0.0, pid: int = 0) -> JobSnapshot:
    """Ranks that wait in all_reduce, or fetch a batch; a restart gives each another process."""
    ranks = [
        a_rank(rank).waiting_in() if waits else a_rank(rank).stuck_in(*GET)
        for rank, waits in enumerate(inside)
    ]
    job = a_job(*ranks, seconds=seconds, facts=False)
    if not pid:
        return job
    others = tuple(msgspec.structs.replace(one, pid=one.pid + pid) for one in job.ranks)
    return msgspec.structs.replace(job, ranks=others)


# ---- several looks ----------------------------------------------------------------------------------------


def test_a_hang_after_a_healthy_look_is_a_hang() -> None:
    found = looked(look(True, True, True), *[look(True, True, False)] * 5)
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (2,))
    assert any("between the newest 5 no wait ended" in one.fact for one in found.evidence)


def test_a_hang_before_a_restart_is_history() -> None:
    found = looked(*[look(False, True, True)] * 2, *[look(True, True, False, pid=500)] * 8)
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (2,))


def test_the_looks_of_two_processes_are_no_movement() -> None:
    found = looked(look(False, True, True), *[look(True, True, False, pid=500)] * 2)
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_what_only_the_look_in_the_middle_shows_is_movement() -> None:
    found = looked(look(True, True, False), look(True, False, False), look(True, True, False))
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_newest_looks_that_are_alike_as_long_as_looks_before_were_prove_nothing() -> None:
    found = looked(*[look(True, True, False)] * 2, *[look(True, False, True)] * 2)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "as 2 in a row were before" in found.summary


def test_a_job_that_moved_in_the_newest_interval_does_not_hang_however_still_it_stood_before() -> None:
    assert looked(*[look(True, True, False)] * 3, look(False, True, True)).verdict == "Healthy"
    assert looked(*[look(True, True, False)] * 5, look(False, True, True)).verdict == "RankNonCommSlow"


def test_a_loop_that_comes_back_to_where_it_was_has_moved() -> None:
    def at(function: str) -> JobSnapshot:
        working = a_rank(1).stuck_in(user(function, 9)).but(gil=True, active=True)
        return a_job(a_rank(0).waiting_in(), working, facts=False)

    found = looked(at("forward"), at("loss"), at("forward"))
    assert (found.verdict, found.culprits) == ("Unknown", ())


# ---- one look ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks",
    [
        [a_rank(0).stuck_in(user("step", 4)).but(gil=True, active=True)],
        [a_rank(0).stuck_in(user("main", 12))],
        [a_rank(rank).stuck_in(user("main", 12)) for rank in range(3)],
        [a_rank(rank).stuck_in(*GET) for rank in range(4)],
    ],
)
def test_one_look_at_ranks_that_wait_for_nobody_is_no_hang(ranks: list[ARank]) -> None:
    found = judge(a_job(*ranks, facts=False))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "one look does not tell" in found.summary


def test_a_time_that_is_not_known_is_not_written_as_none() -> None:
    found = judge(*[a_job(*(a_rank(rank).stuck_in(user("main", 12)) for rank in range(3)), facts=False)] * 2)
    assert "the time between them is not known" in found.summary
    assert "0 s" not in found.summary


def test_a_record_beside_two_looks_at_stacks_is_one_look() -> None:
    """Real: stacks by several tools, a record of each rank in the last look only."""
    job = a_job(*(a_rank(rank).waiting_in() for rank in range(3)), facts=False)
    newest = [(94, False), (92, False), (95, False)]
    records = [a_record(*steps(seq - 1), call(seq=seq, ended=ended)) for seq, ended in newest]
    ranks = tuple(
        msgspec.structs.replace(one, record=record) for one, record in zip(job.ranks, records, strict=True)
    )
    found = judge(job, msgspec.structs.replace(job, ranks=ranks))
    assert (found.verdict, found.culprits) == ("Unknown", ())


# ---- which thread ------------------------------------------------------------------------------------------


def cut(rank: RankSnapshot, *threads: ThreadStack) -> RankSnapshot:
    return msgspec.structs.replace(rank, threads=threads)


@pytest.mark.parametrize(
    "threads",
    [
        (ThreadStack(9, "telemetry", SERVE),),
        (ThreadStack(9, "telemetry", SERVE), ThreadStack(1, "MainThread", (), is_main=True)),
        (ThreadStack(1, "MainThread", (user("load", 8),), is_main=True, is_cut=True),),
    ],
)
def test_a_rank_whose_dump_lacks_its_main_thread_is_not_observed(threads: tuple[ThreadStack, ...]) -> None:
    job = a_job(a_rank(0).waiting_in(), a_rank(1).waiting_in(), a_rank(2).stuck_in(*GET), facts=False)
    first = msgspec.structs.replace(job, ranks=(cut(job.ranks[0], *threads), *job.ranks[1:]))
    found = judge(first)
    assert (found.culprits, found.observed) == ((2,), "1-2")
    assert [one.rank for one in found.unobserved] == [0]
    assert "main thread" in found.unobserved[0].reason
    culprit = msgspec.structs.replace(job, ranks=(*job.ranks[:2], cut(job.ranks[2], *threads)))
    assert judge(culprit).verdict == "Unknown"


def test_a_wait_that_a_cut_stack_still_shows_is_one() -> None:
    job = a_job(a_rank(0).waiting_in(), a_rank(1).stuck_in(*GET), facts=False)
    main = msgspec.structs.replace(job.ranks[0].threads[0], is_cut=True)
    found = judge(msgspec.structs.replace(job, ranks=(cut(job.ranks[0], main), job.ranks[1])))
    assert (found.culprits, found.unobserved) == ((1,), ())


@pytest.mark.parametrize("state", [(False, False), (True, True), (None, None)])
@pytest.mark.parametrize("frames", [GET, (stdlib("Condition.wait", "threading.py", 327), *GET)])
def test_a_helper_thread_is_not_what_a_queue_waits_for(
    frames: tuple[Frame, ...], state: tuple[bool | None, bool | None]
) -> None:
    """Without its source a helper that sleeps between two turns looks like a worker; it may own the GIL."""
    helper = ThreadStack(9, "telemetry", SERVE, holds_gil=state[0], active=state[1])
    ranks = [a_rank(rank).waiting_in().but(others=(helper,)) for rank in (0, 1)]
    found = judge(a_job(*ranks, a_rank(2).stuck_in(*frames).but(others=(helper,)), facts=False))
    assert found.culprits == (2,)
    assert found.location is not None
    assert found.location.function == "fetch"


def test_the_thread_that_is_joined_decides_where_it_is_the_only_one_that_runs() -> None:
    join = (
        stdlib("Thread._wait_for_tstate_lock", "threading.py"),
        stdlib("Thread.join", "threading.py"),
        user("main", 20),
    )
    helper = ThreadStack(9, "telemetry", SERVE, active=False)
    worker = ThreadStack(8, "worker", (user("crunch", 7),), holds_gil=True, active=True)
    for runs in (True, False):
        other = worker if runs else msgspec.structs.replace(worker, holds_gil=False, active=False)
        stuck = a_rank(1).stuck_in(*join).but(others=(helper, other))
        found = judge(a_job(a_rank(0).waiting_in(), stuck, facts=False))
        assert found.location is not None
        assert found.location.function == ("crunch" if runs else "main")


def test_of_several_threads_at_the_exit_none_is_named() -> None:
    shutdown = (stdlib("_shutdown", "threading.py", 1590),)
    worker, daemon = ThreadStack(8, "worker", (user("flush", 7),)), ThreadStack(9, "telemetry", SERVE)
    for others, function in (((worker,), "flush"), ((daemon, worker), "_shutdown")):
        leaving = a_rank(1).but(frames=shutdown, others=others)
        found = judge(a_job(a_rank(0).waiting_in(), leaving, facts=False))
        assert found.location is not None
        assert found.location.function == function
        assert any("flush" in one.fact or "flush" in found.summary for one in found.evidence)


# ---- native stacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "file", "kind"),
    [
        ("__libc_open64", "../sysdeps/unix/sysv/linux/open64.c", "storage"),
        ("__GI___wait4", "../sysdeps/unix/sysv/linux/wait4.c", "child_process"),
        ("epoll_wait", "../sysdeps/unix/sysv/linux/epoll_wait.c", "network"),
        ("__futex_abstimed_wait_common64", "./nptl/futex-internal.c", "lock"),
    ],
)
def test_the_c_library_is_no_user_code(symbol: str, file: str, kind: str) -> None:
    frames = (Frame(symbol, file, 41, "native"), native("main"))
    waits = a_rank(0).but(frames=(native("c10d::Work::wait"), native("main")))
    found = judge(a_job(waits, a_rank(1).but(frames=frames, gil=None, active=None), facts=False))
    assert (found.kind, found.culprits) == (kind, (1,))
    assert "sysdeps" not in found.summary
    assert "nptl" not in found.summary


@pytest.mark.parametrize("file", ["cmd.py", "re/__init__.py", "ast.py", "xml/sax/expatreader.py"])
def test_short_names_of_the_standard_library_are_no_user_code(file: str) -> None:
    stuck = a_rank(1).but(frames=(Frame("loop", file, 126), user("main", 14)))
    found = judge(a_job(a_rank(0).waiting_in(), stuck, facts=False))
    assert found.location is not None
    assert found.location.function == "main"


def test_a_wait_that_only_the_look_with_native_frames_shows_was_not_left() -> None:
    backward = (torch_frame("_engine_run_backward", "torch/autograd/graph.py", 829), user("train_step", 7))
    seen = (native("std::condition_variable::wait"), native("c10d::Reducer::finalize_backward"), *backward)

    def at(frames: tuple[Frame, ...], seconds: float) -> JobSnapshot:
        waiting = [a_rank(rank).stuck_in(*frames, wchan="futex_do_wait") for rank in (0, 2)]
        return a_job(*waiting, a_rank(1).stuck_in(user("validate", 9)), seconds=seconds)

    for first, second in ((seen, backward), (backward, seen)):
        found = judge(at(first, 0.0), at(second, 4.0))
        assert (found.verdict, found.culprits) == ("RankNonCommHang", (1,))


# ---- two looks of which nothing but the stacks is known ------------------------------------------------


def two_looks(*pairs: tuple[ARank, ARank], seconds: float = 0.0) -> Diagnosis:
    first, second = ([pair[at] for pair in pairs] for at in (0, 1))
    return judge(a_job(*first, facts=False), a_job(*second, seconds=seconds, facts=False))


INSIDE = [a_rank(rank).waiting_in("all_gather_into_tensor") for rank in range(4)]


def test_all_ranks_in_one_call_at_two_looks_may_be_the_layer_and_nobody_is_named() -> None:
    found = two_looks(*((one, one) for one in INSIDE), seconds=120.0)
    assert (found.verdict, found.culprits, found.confidence, found.rule) == ("RankCommHang", (), "low", "7")
    assert found.severity == "warning"
    assert "the looks are 120 s apart" in found.summary


def test_looks_at_once_after_each_other_or_at_other_lines_show_no_hang_of_the_layer() -> None:
    for seconds in (0.0, 4.0):  # 0: nobody knows when they were taken
        assert two_looks(*((one, one) for one in INSIDE), seconds=seconds).verdict == "Unknown"
    later = [a_rank(rank).waiting_in("all_gather_into_tensor", line=12 + rank // 3) for rank in range(4)]
    assert two_looks(*zip(INSIDE, later, strict=True), seconds=120.0).verdict != "RankCommHang"


BACKWARD = (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("train", 93))


def test_ranks_that_all_stand_elsewhere_at_the_next_look_are_healthy() -> None:
    backward = [a_rank(rank).stuck_in(*BACKWARD) for rank in range(4)]
    forward = [
        a_rank(rank).stuck_in(user("forward", 40 + rank, "model.py")).but(active=True) for rank in range(4)
    ]
    found = two_looks(
        (backward[0], forward[0]),
        (forward[1], backward[1]),
        (backward[2], forward[2]),
        (forward[3], backward[3]),
    )
    assert (found.verdict, found.confidence, found.rule) == ("Healthy", "medium", "0")


def test_one_rank_that_stays_or_all_that_come_to_one_wait_leave_it_open() -> None:
    backward = [a_rank(rank).stuck_in(*BACKWARD) for rank in range(3)]
    forward = [
        a_rank(rank).stuck_in(user("forward", 40 + rank, "model.py")).but(active=True) for rank in range(3)
    ]
    stays = two_looks((backward[0], forward[0]), (forward[1], backward[1]), (forward[2], forward[2]))
    assert stays.verdict == "Unknown"
    come = two_looks((backward[0], INSIDE[0]), (forward[1], INSIDE[1]), (forward[2], INSIDE[2]))
    assert come.verdict == "Unknown"


def test_a_time_in_the_names_says_how_long_nothing_moved() -> None:
    stands = [a_rank(rank).stuck_in(user("main", 12)) for rank in range(3)]
    found = two_looks(*((one, one) for one in stands), seconds=300.0)
    assert "nothing moved in 300 s" in found.summary
