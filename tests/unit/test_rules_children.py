"""Children of a rank, followed to the place where they stand: loader workers, pools, commands, writers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.classify_factory import ARank, a_job, a_rank, judge, judge_still, stdlib, torch_frame, user
from tests.rules_factory import LOADER_WAIT, a_child, facts_of, waiting

from rankscope.diag.model import ChildSnapshot, Diagnosis, Frame, ProcessFacts

WORKER = (
    torch_frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 54),
    torch_frame("_worker_loop", "torch/utils/data/_utils/worker.py", 374),
    stdlib("BaseProcess._bootstrap", "multiprocessing/process.py", 314),
    stdlib("Popen._launch", "multiprocessing/popen_fork.py", 71),
    user("train", 63),
)
IDLE = (
    stdlib("_PollLikeSelector.select", "selectors.py", 415),
    stdlib("wait", "multiprocessing/connection.py", 947),
    stdlib("Queue.get", "multiprocessing/queues.py", 113),
    *WORKER[1:],
)
POOL_WAIT = (
    stdlib("Condition.wait", "threading.py", 327),
    stdlib("Event.wait", "threading.py", 629),
    stdlib("ApplyResult.wait", "multiprocessing/pool.py", 768),
    stdlib("ApplyResult.get", "multiprocessing/pool.py", 771),
    stdlib("Pool.map", "multiprocessing/pool.py", 367),
    user("count_all", 45),
)
POOL_WORKER = (
    stdlib("worker", "multiprocessing/pool.py", 125),
    stdlib("BaseProcess._bootstrap", "multiprocessing/process.py", 314),
    stdlib("Popen._launch", "multiprocessing/popen_fork.py", 71),
)
WRITER_WAIT = (
    stdlib("Popen.poll", "multiprocessing/popen_fork.py", 27),
    stdlib("Popen.wait", "multiprocessing/popen_fork.py", 43),
    stdlib("BaseProcess.join", "multiprocessing/process.py", 149),
    user("finalize", 88),
)


def in_state(child: ChildSnapshot, state: str) -> ChildSnapshot:
    facts = ProcessFacts(child.pid, 7, 1, 0.0, state, "pt_data_worker", started=900.0)
    return replace(child, facts=facts)


def with_children(*children: ChildSnapshot, frames: tuple[Frame, ...] = LOADER_WAIT) -> ARank:
    return a_rank(1).stuck_in(*frames).but(children=children)


def place(found: Diagnosis) -> tuple[str, int]:
    assert found.location is not None
    assert found.culprits == (1,)
    return found.location.function, found.location.line


def followed(*children: ChildSnapshot, frames: tuple[Frame, ...] = LOADER_WAIT) -> Diagnosis:
    return judge_still(*waiting(0, 2), with_children(*children, frames=frames))


def test_a_worker_deadlocked_in_a_lock_after_its_fork_is_where_the_rank_waits() -> None:
    stuck = (stdlib("_acquireLock", "logging/__init__.py", 219), user("Index.offset", 47), *WORKER)
    found = followed(a_child(80, *IDLE), a_child(81, *stuck))
    assert (place(found), found.kind) == (("Index.offset", 47), "data_loading")
    assert "its child process 81 is in Index.offset (train.py:47)" in facts_of(found)


def test_a_worker_that_stands_in_a_library_is_followed_there() -> None:
    """An image folder's own data set: no frame of the user's on the worker's stack."""
    stuck = (torch_frame("ImageFile.load", "PIL/ImageFile.py", 288), *WORKER)
    found = followed(a_child(80, *IDLE), a_child(81, *stuck))
    assert (place(found), found.kind) == (("ImageFile.load", 288), "data_loading")


def test_idle_workers_are_not_where_the_rank_waits() -> None:
    found = followed(a_child(80, *IDLE), a_child(81, *IDLE))
    assert place(found) == ("train", 63)
    assert not any("child process" in one for one in facts_of(found))


def test_a_worker_that_is_stopped_goes_before_one_that_is_at_work() -> None:
    works = a_child(80, user("decode", 12), *WORKER)
    stopped = in_state(a_child(81, user("decode", 15), *WORKER), "T")
    found = followed(works, stopped)
    assert place(found) == ("decode", 15)
    assert "its child process 81 is stopped by a signal, in decode (train.py:15)" in facts_of(found)


def test_a_worker_that_died_between_the_looks_is_in_the_evidence() -> None:
    gone, left = a_child(80, *IDLE), a_child(81, *IDLE)
    ranks = [rank.but(step=5) for rank in waiting(0, 2)]
    before = a_job(*ranks, with_children(gone, left).but(step=5))
    found = judge(before, a_job(*ranks, with_children(left).but(step=5), seconds=4.0), silent=12.0)
    assert found.culprits == (1,)
    assert "its child process 80 has ended between the looks" in facts_of(found)


def test_a_dead_worker_that_nobody_took_note_of_is_in_the_evidence() -> None:
    found = followed(a_child(80, *IDLE), in_state(ChildSnapshot(81), "Z"))
    assert "its child process 81 (pt_data_worker) is in state Z" in facts_of(found)


def test_a_pool_one_of_whose_processes_was_killed_is_what_the_rank_waits_for() -> None:
    """Its place was taken by a new process, which waits for work."""
    idle = (stdlib("SemLock.__enter__", "multiprocessing/synchronize.py", 95), *POOL_WORKER)
    found = followed(a_child(80, *idle), a_child(81, *idle), frames=POOL_WAIT)
    assert (place(found), found.kind) == (("count_all", 45), "child_process")
    assert any("child process 80" in one for one in facts_of(found))


def test_a_pool_s_process_that_hangs_is_followed() -> None:
    found = followed(a_child(80, user("count", 31), *POOL_WORKER), frames=POOL_WAIT)
    assert (place(found), found.kind) == (("count", 31), "child_process")


def test_a_checkpoint_s_writer_is_followed_from_the_join() -> None:
    writes = (torch_frame("_write_item", "torch/distributed/checkpoint/filesystem.py", 300),)
    own = (*writes, user("write_shard", 22), *WORKER[2:])
    found = followed(a_child(80, *own), frames=WRITER_WAIT)
    assert place(found) == ("write_shard", 22)
    assert "its child process 80 is in write_shard (train.py:22)" in facts_of(found)


def test_a_line_that_waits_for_a_child_is_followed() -> None:
    """``os.waitpid`` leaves no frame."""
    stuck = with_children(a_child(80, user("convert", 9), *WORKER[2:]), frames=(user("launch", 40),))
    found = judge_still(*waiting(0, 2), stuck.but(wchan="do_wait"), lines={40: "os.waitpid(pid, 0)"})
    assert place(found) == ("convert", 9)


@pytest.mark.parametrize(
    "frames", [(user("load_batch", 8),), (stdlib("Lock.acquire", "threading.py"), user("f", 4))]
)
def test_a_rank_that_waits_for_no_child_is_not_followed_into_one(frames: tuple[Frame, ...]) -> None:
    found = followed(a_child(80, user("decode", 12), *WORKER), frames=frames)
    assert place(found)[0] != "decode"


def test_a_writer_of_a_library_in_the_users_own_folder_is_followed() -> None:
    """The join stands in a checkpoint's code: its label says what is written, not where it is stuck."""
    frames = (
        *WRITER_WAIT[:3],
        user("close", 248, "/workspace/Megatron-LM/megatron/core/dist_checkpointing/strategies/x.py"),
    )
    writes = (
        user(
            "write_preloaded_data",
            402,
            "/workspace/Megatron-LM/megatron/core/dist_checkpointing/strategies/y.py",
        ),
        *WORKER[2:],
    )
    found = followed(a_child(80, *writes), frames=frames)
    assert (place(found), found.kind) == (("write_preloaded_data", 402), "checkpoint")


def test_a_worker_in_a_library_leaves_the_line_that_asked_the_pool() -> None:
    stuck = (torch_frame("encode", "tokenizers/fast.py", 504), *POOL_WORKER)
    found = followed(a_child(80, *stuck), frames=POOL_WAIT)
    assert place(found) == ("count_all", 45)
    assert "its child process 80 is in encode (tokenizers/fast.py:504)" in facts_of(found)
