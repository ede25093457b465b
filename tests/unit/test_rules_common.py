"""Rules 10 and 11: one place for all, and the start."""

from __future__ import annotations

import pytest
from tests.classify_factory import (
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
    facts_of,
    loading,
    said,
)

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
    # What is wrong is not the store: the rank's own place says it.
    assert said(found) == ("RankNonCommHang", "user_code", "high", (1,), "11")


# ---- what is at the place ----


def test_a_key_that_all_wait_for_is_a_common_cause_and_named() -> None:
    asking = [a_rank(rank).stuck_in(user("sync", 12), wchan="poll_schedule_timeout") for rank in range(3)]
    found = judge_still(*asking, lines={12: 'plan = store.get("plan-of-epoch-2")'})
    assert said(found) == ("RankNonCommHang", "store_wait", "medium", (), "10")
    assert 'wait in store wait for the key "plan-of-epoch-2"; no minority' in found.summary
    assert found.location is not None
    assert found.location.function == "sync"


def test_a_wait_has_one_name_whether_c_frames_or_the_line_show_it() -> None:
    """A closer look is taken of some ranks only."""
    wait = native("c10d::TCPStore::doWait")
    asking = [a_rank(rank).stuck_in(user("sync", 12), wchan="poll_schedule_timeout") for rank in range(3)]
    asking[1] = asking[1].but(frames=(wait, *asking[1].frames))
    found = judge_still(*asking, lines={12: 'plan = store.get("plan-of-epoch-2")'})
    assert (found.rule, {one.position for one in found.ranks}) == ("10", {"store wait"})
    works = [a_rank(rank).stuck_in(user("step", 22), wchan="futex_do_wait") for rank in range(3)]
    works[1] = works[1].but(frames=(native("c10d::Work::wait"), *works[1].frames))
    found = judge_still(*works, lines={22: "work.wait()"})
    assert (found.rule, {one.position for one in found.ranks}) == ("7", {"wait"})


def test_ranks_at_different_keys_are_not_in_one_place() -> None:
    asking = [
        a_rank(rank).stuck_in(user("sync", 12 + rank), wchan="poll_schedule_timeout") for rank in (0, 1)
    ]
    found = judge_still(*asking, lines={12: 'store.get("a")', 13: 'store.get("b")'})
    assert (found.culprits, found.rule) == ((), "11")


SAVES = (
    torch_frame("_open_zipfile_writer_file.__init__", "torch/serialization.py", 828),
    torch_frame("save", "torch/serialization.py", 966),
    user("keep", 9),
)


def test_a_checkpoint_that_no_rank_can_write_is_named_though_nobody_saw_the_job_move() -> None:
    """No server waits for requests inside of ``torch.save``."""
    ranks = [a_rank(rank).stuck_in(*SAVES, wchan="wait_for_partner") for rank in range(3)]
    for silent in (None, 300.0):
        found = judge_still(
            *ranks, trained=False, silent=silent, lines={9: 'torch.save(m, "/mnt/ckpt/m.pt")'}
        )
        assert said(found) == ("RankNonCommHang", "checkpoint", "low", (), "10")
        assert (
            "stuck in keep (train.py:9), checkpoint (the file /mnt/ckpt/m.pt); no minority" in found.summary
        )
    assert judge_still(*ranks[:2], trained=False, world_size=3).verdict == "Unknown"
    assert judge_still(*(rank.but(io=50.0) for rank in ranks), trained=False).verdict != "RankNonCommHang"


def test_words_in_a_name_do_not_make_ranks_at_rest_a_hang() -> None:
    ranks = [a_rank(rank).stuck_in(user("save_checkpoint", 9), wchan="futex_do_wait") for rank in range(3)]
    assert judge_still(*ranks, trained=False).verdict == "Unknown"


def test_a_library_that_the_catalogue_does_not_know_is_no_sure_common_cause() -> None:
    frames = (torch_frame("_unique2", "torch/functional.py", 1004), torch_frame("run", "sglang/srt/s.py", 9))
    found = judge_still(*(a_rank(rank).but(frames=frames) for rank in range(3)))
    assert said(found) == ("RankNonCommHang", "none", "low", (), "10")


def test_a_lock_that_all_wait_for_is_named() -> None:
    ranks = [a_rank(rank).stuck_in(user("guarded", 85), wchan="flock_lock_inode_wait") for rank in range(2)]
    found = judge_still(*ranks, lines={85: "with self.index_lock:"})
    assert found.kind == "lock"
    assert "waiting for a lock (the lock self.index_lock)" in found.summary


def test_the_kernel_s_path_of_a_file_goes_before_what_the_line_says() -> None:
    ranks = [
        a_rank(rank).stuck_in(*SAVES, wchan="wait_for_partner").but(call="openat /mnt/ckpt/m.pt", step=5)
        for rank in range(2)
    ]
    found = judge_still(*ranks, lines={9: 'torch.save(model, path + ".pt")'})
    assert "checkpoint (the file /mnt/ckpt/m.pt)" in found.summary
    assert "its system call sleeps: openat /mnt/ckpt/m.pt" in facts_of(found)


BATON = (torch_frame("FileBaton.wait", "torch/utils/file_baton.py", 50),)
BUILD = (
    *BATON,
    torch_frame("_jit_compile", "torch/utils/cpp_extension.py", 2100),
    user("build_operator", 63),
)


@pytest.mark.parametrize("trained", [True, False])
def test_ranks_that_all_poll_for_the_end_of_a_build_are_a_common_cause(trained: bool) -> None:
    """They sleep and look in turn; whoever builds stands elsewhere."""
    ranks = [a_rank(rank).stuck_in(*BUILD).but(switches=10.0) for rank in range(3)]
    looks = [rank.but(frames=(stdlib("exists", "genericpath.py", 19), *rank.frames)) for rank in ranks]
    ranks = [ranks[0], looks[1], ranks[2]]
    found = judge_still(*ranks, trained=trained)
    assert said(found) == ("RankNonCommHang", "compile", "low", (), "10")
    assert found.severity == "info"
    assert judge_still(*ranks, trained=trained, silent=120.0).severity == "warning"
    builds = a_rank(2).stuck_in(user("compile", 9)).but(cpu=0.9)
    assert judge_still(*ranks[:2], builds, trained=trained).verdict != "RankNonCommHang"
    works = a_rank(2).stuck_in(*BUILD).but(cpu=0.9)
    assert judge_still(*ranks[:2], works, trained=trained).verdict != "RankNonCommHang"


def test_a_lock_file_of_a_build_that_all_ranks_wait_for_needs_no_second_look_and_is_named() -> None:
    """A killed build left it behind: whoever builds would stand elsewhere (transformers#12989)."""
    job = a_job(*(a_rank(rank).stuck_in(*BUILD) for rank in range(4)), facts=False)
    for found in (judge(job), judge(job, job)):
        assert said(found) == ("RankNonCommHang", "compile", "low", (), "10")
        assert "FileBaton.wait" in found.summary
        assert "common cause" in found.summary
    some = a_job(*(a_rank(rank).stuck_in(*BUILD) for rank in range(4)), world_size=5, facts=False)
    assert judge(some).verdict == "Unknown"
