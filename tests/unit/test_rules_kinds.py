"""What a culprit is doing, its child processes included."""

from __future__ import annotations

import pytest
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
from tests.rules_factory import (
    LOADER_WAIT,
    facts_of,
    said,
    waiting,
)

from rankscope.diag.model import ChildSnapshot, Diagnosis, ThreadStack

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


# ---- the GIL, the GPU, and what no frame knows ----


def test_a_checkpoint_that_keeps_the_gil_is_a_checkpoint() -> None:
    """Measured: ``torch.save`` opens its file in C with the GIL held."""
    file = "torch/serialization.py"
    frames = (torch_frame("_open_zipfile_writer_file.__init__", file, 828), torch_frame("save", file, 966))
    saves = a_rank(1).stuck_in(*frames, user("write_shard", 9), wchan="wait_for_partner").but(beat=9.0)
    found = judge_still(*waiting(0, 2), saves)
    assert (found.kind, found.culprits) == ("checkpoint", (1,))
    assert "a thread sleeps while it owns the GIL" in facts_of(found)
    bare = a_rank(1).stuck_in(user("f", 9), wchan="anon_pipe_read").but(beat=9.0)
    assert judge_still(*waiting(0, 2), bare).kind == "storage"
    assert judge_still(*waiting(0, 2), bare.but(wchan="futex_do_wait")).kind == "native_gil"


ON_DEVICE = (
    native("cuStreamSynchronize", "libcuda.so.1"),
    native("cudaStreamSynchronize", "libcudart.so.12"),
    user("update_weights", 702),
)


def test_a_rank_that_spins_for_its_gpu_does_not_compute() -> None:
    spins = a_rank(2).stuck_in(*ON_DEVICE).but(cpu=1.0, active=True)
    early = judge_still(*waiting(0, 1), spins, silent=35.0)
    assert early.verdict == "Unknown"
    assert "rank 2 has been waiting for its GPU in update_weights (train.py:702) for 35 s" in early.summary
    late = judge_still(*waiting(0, 1), spins, silent=600.0)
    assert said(late)[:1] + said(late)[2:] == ("RankNonCommHang", "low", (2,), "8")


def test_a_rank_that_computes_between_its_waits_for_the_gpu_is_no_hang() -> None:
    elsewhere = a_rank(2).stuck_in(user("evaluate", 36)).but(cpu=1.0)
    spins = a_rank(2).stuck_in(*ON_DEVICE).but(cpu=1.0)
    found = judge(a_job(*waiting(0, 1), elsewhere), a_job(*waiting(0, 1), spins, seconds=4.0), silent=600.0)
    assert found.verdict == "Unknown"


def test_a_stack_without_the_user_s_code_is_no_user_code() -> None:
    frames = (torch_frame("_unique2", "torch/functional.py", 1004), torch_frame("run", "sglang/srt/s.py", 9))
    found = judge_still(*waiting(0, 2), a_rank(1).but(frames=frames))
    assert (found.culprits, found.kind) == ((1,), "none")


def searching(*, silent: float, beat: float = 9.0, sampled: bool = True) -> Diagnosis:
    search = a_rank(2).stuck_in(user("is_sentence", 5)).but(cpu=1.0, beat=beat, gil=True, active=True)
    ranks = [rank.but(step=5) for rank in (*waiting(0, 1), search)]
    quick = tuple(a_job(ranks[2], seconds=4.0 + at / 4, world_size=3) for at in range(20 * sampled))
    return judge(a_job(*ranks), a_job(*ranks, seconds=4.0), silent=silent, samples=quick)


def test_a_call_in_c_that_keeps_the_gil_is_told_as_information_once_it_lasts() -> None:
    found = searching(silent=36.0)
    assert said(found) == ("RankNonCommHang", "native_gil", "medium", (2,), "8")
    assert {found.severity, searching(silent=300.0).severity} == {"info"}
    assert searching(silent=12.0).verdict == "Unknown"


def test_a_rank_that_collects_garbage_keeps_the_gil_and_is_no_hang() -> None:
    """Who takes the samples asks, and leaves it out of them."""
    assert searching(silent=36.0, sampled=False).verdict == "Unknown"
