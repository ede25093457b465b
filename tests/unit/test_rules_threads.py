"""Which thread of a rank decides, and waits that leave no frame."""

from __future__ import annotations

import pytest
from tests.classify_factory import (
    ARank,
    a_job,
    a_rank,
    collective,
    judge,
    judge_still,
    native,
    stdlib,
    torch_frame,
    user,
)
from tests.rules_factory import (
    BACKWARD,
    GET,
    JOIN,
    facts_of,
    in_thread,
    loading,
    said,
    waiting,
)

from rankscope.diag.model import Frame, ThreadStack

# ---- the deciding thread and waits without a frame --------------------------------------------------------


def test_the_thread_that_holds_the_gil_while_it_sleeps_decides() -> None:
    holder = ThreadStack(99, "NativeHolder", (user("<lambda>", 265),), holds_gil=True, active=False)
    stuck = a_rank(1).stuck_in(stdlib("Event.wait", "threading.py"), user("f", 4)).but(others=(holder,))
    found = judge_still(*waiting(0, 2), stuck)
    assert (found.kind, found.culprits) == ("native_gil", (1,))
    assert found.location is not None
    assert found.location.line == 265


def test_a_thread_that_keeps_the_gil_at_both_looks_decides_whatever_the_main_thread_is_in() -> None:
    """The collective may be over: without the GIL the main thread does not come out of it."""
    holder = ThreadStack(99, "Thread-1", (user("compute", 43),), holds_gil=True, active=False)
    kept = a_rank(1).waiting_in().but(others=(holder,))
    found = judge_still(*waiting(0, 2), kept)
    assert (found.kind, found.culprits) == ("native_gil", (1,))
    assert found.location is not None
    assert found.location.line == 43
    assert said(judge(a_job(*waiting(0, 2), kept.but(beat=9.0))))[3] == (1,)


def test_a_thread_that_has_the_gil_at_one_look_holds_nothing_up() -> None:
    """Any thread has it at some moment, a reader of a file too; the probe was not kept from running."""
    holder = ThreadStack(99, "Thread-1", (user("report", 43),), holds_gil=True, active=False)
    stuck = a_rank(2).stuck_in(user("load", 4)).but(step=5)
    calm = [one.but(step=5) for one in waiting(0, 1)]
    for has, had in ((calm[1].but(others=(holder,)), calm[1]), (calm[1], calm[1].but(others=(holder,)))):
        before, after = a_job(calm[0], had, stuck), a_job(calm[0], has, stuck, seconds=4.0)
        assert said(judge(before, after))[3] == (2,)
    assert said(judge(a_job(calm[0], calm[1].but(others=(holder,), beat=0.5), stuck)))[3] == (2,)


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


# ---- training in a thread ---------------------------------------------------------------------------------


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


# ---- several threads in collectives ----


def with_pool(rank: int, name: str) -> ARank:
    pool = ThreadStack(90 + rank, "ThreadPoolExecutor-0_0", (*collective(name)[:2], *POOL_THREAD))
    return a_rank(rank).waiting_in("barrier").but(others=(pool,))


POOL_THREAD = (
    torch_frame("async_save", "torch/distributed/checkpoint/state_dict_saver.py", 300),
    stdlib("_worker", "concurrent/futures/thread.py", 83),
)


def test_that_other_threads_are_in_collectives_is_in_the_evidence() -> None:
    """Measured in bug reports: an asynchronous checkpoint gathers beside the main thread's barrier."""
    found = judge_still(with_pool(0, "gather_object"), with_pool(1, "gather_object"), *waiting(2))
    assert "another thread of ranks 0-1 is in gather_object" in facts_of(found)


# ---- where main threads tell nothing ----


def polling(rank: int, *frames: Frame) -> ARank:
    trainer = (ThreadStack(90 + rank, "trainer", frames, active=False),) if frames else ()
    return a_rank(rank).stuck_in(user("serve_until_done", 320)).but(others=trainer, switches=1.0)


IN_TRAINER = (user("train", 19), user("in_thread", 263))


def test_where_all_main_threads_poll_in_one_place_the_threads_that_hold_collectives_decide() -> None:
    waits = [polling(rank, *collective()[:2], *IN_TRAINER) for rank in (0, 2)]
    found = judge_still(waits[0], polling(1, user("load", 40), *IN_TRAINER), waits[1])
    assert (found.verdict, found.culprits, found.ranks[0].position) == ("RankNonCommHang", (1,), "all_reduce")
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("load", 40)
    died = judge_still(waits[0], polling(1), waits[1])
    assert (died.culprits, died.location and died.location.function) == ((1,), "serve_until_done")


def test_a_main_thread_that_stands_elsewhere_than_the_others_decides() -> None:
    """A thread that sends metrics does not make a rank whose main thread loads one that waits."""
    sends = ThreadStack(95, "metrics", (*collective()[:2], user("send_metrics", 7)), active=False)
    stuck = loading(1).but(others=(sends,))
    found = judge_still(*(rank.but(others=(sends,)) for rank in waiting(0, 2)), stuck)
    assert (found.culprits, found.kind) == ((1,), "data_loading")


MAIN_LOOP = (stdlib("Worker.main_loop", "site-packages/ray/_private/worker.py"), user("<module>", 323))


def test_where_a_loop_has_the_main_thread_the_program_decides_from_its_own() -> None:
    """Ray's loop takes some CPU time while it serves nobody: that is no progress of the program."""
    program = (user("train", 33), stdlib("Thread.run", "threading.py"))
    inside = ThreadStack(7, None, (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), *program))
    awaited = ThreadStack(7, None, (stdlib("Path.open", "pathlib.py"), user("read_shard", 24), *program))
    waits = ThreadStack(
        8, None, (stdlib("Condition.wait", "threading.py"), stdlib("Thread.run", "threading.py"))
    )
    ranks = [
        a_rank(rank).stuck_in(*MAIN_LOOP).but(others=(thread, waits), cpu=0.4, switches=60)
        for rank, thread in ((0, inside), (1, awaited))
    ]
    found = judge_still(*ranks)
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (1,))
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("read_shard", 24)


def test_what_the_loop_runs_itself_decides() -> None:
    called = a_rank(1).stuck_in(user("load", 4), *MAIN_LOOP)
    found = judge_still(*waiting(0, 2), called)
    assert found.culprits == (1,)
    assert found.location is not None
    assert found.location.line == 4


def test_an_autograd_thread_that_copies_gradients_is_no_desync_and_its_line_is_that_of_the_backward() -> None:
    """ZeRO's copies to the host wait for the GPU, not for other ranks (accelerate#3104)."""
    backward = (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("training_step", 41))
    gathers = ThreadStack(99, None, collective("all_gather_into_tensor")[:2], active=True)
    copies = ThreadStack(
        99, None, (torch_frame("partition_grads", "deepspeed/runtime/zero/stage3.py", 1500),), active=True
    )
    ranks = [a_rank(rank).stuck_in(*backward).but(others=(gathers,)) for rank in range(3)]
    odd = a_rank(3).stuck_in(*backward).but(others=(copies,))
    found = judge(a_job(*ranks, odd, facts=False))
    assert said(found) == ("RankNonCommHang", "none", "low", (3,), "8")
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("training_step", 41)
    assert any("thread 99 in partition_grads" in fact for fact in facts_of(found))
    same = judge_still(*(one.but(others=(copies,)) for one in (*ranks, odd)))
    assert same.culprits == ()


# ---- the place of a rank without a frame of the user's ----------------------------------------------------

SPAWNED = (
    torch_frame("run_worker", "sglang/srt/managers/scheduler.py", 2900),
    stdlib("BaseProcess.run", "multiprocessing/process.py", 108),
    stdlib("spawn_main", "multiprocessing/spawn.py", 122),
    Frame("<module>", "<string>", 1),
)


@pytest.mark.parametrize(
    ("frames", "place", "kind"),
    [
        (
            (torch_frame("safetensors_weights_iterator", "sglang/srt/model_loader/weight_utils.py", 510),),
            "safetensors_weights_iterator",
            "checkpoint",
        ),
        (
            (torch_frame("CompiledKernel._init_handles", "triton/compiler/compiler.py", 473),),
            "CompiledKernel._init_handles",
            "compile",
        ),
        (
            (
                stdlib("Condition.wait", "threading.py", 320),
                torch_frame("Mailbox.wait", "wandb/sdk/lib/mailbox.py", 128),
                torch_frame("Run._atexit_cleanup", "wandb/sdk/wandb_run.py", 2223),
            ),
            "Run._atexit_cleanup",
            "exit",
        ),
        (
            (stdlib("SSLSocket.read", "ssl.py", 1103), torch_frame("get", "acme/client.py", 4)),
            "get",
            "network",
        ),
    ],
    ids=["weights", "triton", "exit", "socket"],
)
def test_without_a_line_of_the_users_the_frame_that_tells_most_is_shown(
    frames: tuple[Frame, ...], place: str, kind: str
) -> None:
    waits = [a_rank(rank).but(frames=(*collective()[:2], *SPAWNED)) for rank in (0, 1)]
    found = judge_still(*waits, a_rank(2).but(frames=(*frames, *SPAWNED)))
    assert (found.culprits, found.kind) == ((2,), kind)
    assert found.location is not None
    assert found.location.function == place


def test_only_plumbing_shows_its_leaf() -> None:
    waits = [a_rank(rank).but(frames=(*collective()[:2], *SPAWNED)) for rank in (0, 1)]
    found = judge_still(
        *waits, a_rank(2).but(frames=(stdlib("Condition.wait", "threading.py", 320), *SPAWNED[1:]))
    )
    assert found.location is not None
    assert found.location.function == "Condition.wait"


# ---- names of waits that only C++ frames show --------------------------------------------------------------


def of_gdb(rank: int, *symbols: str) -> ARank:
    return a_rank(rank).but(
        frames=(native("??", "libcuda.so.1"), *map(native, symbols), native("Py_BytesMain"))
    )


RECEIVES = (
    "pncclCommInitRankConfig",
    "c10d::NCCLComm::create(int, int, ncclUniqueId, signed char, ncclConfig_v22700&)",
    "c10d::ProcessGroupNCCL::recv(std::vector<at::Tensor, std::allocator<at::Tensor> >&, int, int)",
    "c10d::ops::(anonymous namespace)::recv_CUDA(c10::ArrayRef<at::Tensor>, long, long)",
)


def test_ranks_that_set_a_communicator_up_wait_for_the_one_at_its_gpu() -> None:
    """The first send and receive of two ranks set theirs up (nccl#1774)."""
    away = of_gdb(0, "cudaStreamSynchronize", "at::native::copy_kernel_cuda(at::TensorIterator&, bool)")
    found = judge(a_job(away, *(of_gdb(rank, *RECEIVES) for rank in (1, 2, 3)), facts=False))
    assert said(found) == ("RankNonCommHang", "none", "low", (0,), "11")
    assert found.summary == (
        "rank 0 is stuck in cudaStreamSynchronize (libtorch_cpu.so); ranks 1-3 wait for it in recv"
    )


def test_waits_for_gpus_have_the_names_of_their_calls() -> None:
    waits = [
        of_gdb(rank, "cudaDeviceSynchronize", "torch::THCPModule_cudaSynchronize()") for rank in range(3)
    ]
    found = judge(
        a_job(*waits, of_gdb(3, "cudaMemcpyAsync", "at::native::item(at::Tensor const&)"), facts=False)
    )
    assert (found.kind, found.confidence, found.culprits) == ("desync", "low", (3,))
    assert "ranks 0-2 wait in cudaDeviceSynchronize" in found.summary
    assert "rank 3 in cudaMemcpyAsync" in found.summary


LOOP = (
    stdlib("Worker.main_loop", "site-packages/ray/_private/worker.py", 946),
    stdlib("<module>", "site-packages/ray/_private/workers/default_worker.py", 330),
)


def test_a_worker_that_waits_for_its_next_task_has_none_and_says_so() -> None:
    found = judge_still(*waiting(0, 1, 3), a_rank(2).but(frames=LOOP))
    assert (found.culprits, found.kind) == ((2,), "none")
    assert "rank 2 has no task, in Worker.main_loop (" in found.summary


@pytest.mark.parametrize("active", [True, False])
def test_one_look_shows_a_worker_without_a_task_at_rest_whatever_its_flag_says(active: bool) -> None:
    looked = a_job(*waiting(0, 1, 3), a_rank(2).but(frames=LOOP, state=None, active=active))
    found = judge(looked, None)
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (2,))


def test_what_a_worker_runs_in_a_library_is_its_task() -> None:
    served = (torch_frame("generate", "vllm/engine.py", 7), *LOOP)
    found = judge_still(*waiting(0, 1, 3), a_rank(2).but(frames=served))
    assert found.culprits == (2,)
    assert "no task" not in found.summary


def test_workers_that_all_have_no_task_hang_nowhere() -> None:
    found = judge_still(*(a_rank(rank).but(frames=LOOP) for rank in range(3)))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "no rank has a task" in found.summary
