"""What the place of most ranks says of a look at stacks alone: unseen waits for GPUs, and locks of files."""

from __future__ import annotations

from msgspec.structs import replace
from tests.classify_factory import ARank, a_job, a_rank, collective, judge, stdlib, torch_frame, user
from tests.records_factory import a_record, call, steps
from tests.rules_factory import LOADER_WAIT, facts_of, said

from rankscope.diag.model import Diagnosis, ThreadStack

ITEM = user("train_one_epoch", 97)


def at_item(*ranks: int) -> list[ARank]:
    """Ranks in ``loss.item()``: the tool sees them run, and no frame shows the wait for the GPU."""
    return [a_rank(rank).stuck_in(ITEM).but(active=True) for rank in ranks]


def one_look(*ranks: ARank) -> Diagnosis:
    return judge(a_job(*ranks, facts=False))


# ---- most ranks at one line -------------------------------------------------------------------------------


def test_the_rank_that_waits_for_its_loader_is_named_where_all_others_are_at_one_line() -> None:
    found = one_look(*at_item(0, 1, 2, 3), a_rank(4).stuck_in(*LOADER_WAIT))
    assert said(found) == ("RankNonCommHang", "data_loading", "low", (4,), "8")
    assert any("where it waits for its loader" in fact for fact in facts_of(found))
    assert any("ranks 0-3 are all at train_one_epoch (train.py:97)" in fact for fact in facts_of(found))


def test_the_majority_at_one_line_is_not_suspected_beside_a_rank_in_a_collective() -> None:
    """It ran out of data and sums its evaluation up; the others wait for gradients that it never sends."""
    found = one_look(
        *at_item(0, 1, 2, 4), a_rank(3).but(frames=collective("all_reduce", caller="evaluate", line=140))
    )
    assert (found.verdict, found.kind, found.rule) == ("Unknown", "desync", "8")
    assert [one.rank for one in found.ranks if one.state == "suspected"] == [3]
    assert "ranks 0-2,4 are all at train_one_epoch (train.py:97)" in found.summary


def test_a_few_at_one_line_or_a_second_that_runs_elsewhere_say_nothing() -> None:
    waits = [a_rank(rank).waiting_in() for rank in (2, 3)]
    few = one_look(*at_item(0, 1), *waits)
    assert [one.rank for one in few.ranks if one.state == "suspected"] == [0, 1]
    runs = a_rank(4).stuck_in(user("augment", 12)).but(active=True)
    assert one_look(*at_item(0, 1, 2, 3), runs).culprits == ()
    assert one_look(*at_item(0, 1, 2, 3), runs).kind != "desync"


def test_at_one_line_but_asleep_they_are_what_the_others_wait_for() -> None:
    still = [a_rank(rank).stuck_in(user("read", 7)) for rank in range(4)]
    assert one_look(*still, a_rank(4).waiting_in()).culprits == (0, 1, 2, 3)


def test_of_one_look_it_is_not_said_for_how_long() -> None:
    found = one_look(a_rank(0).waiting_in(), a_rank(1).stuck_in(user("evaluate", 36)).but(active=True))
    assert "rank 1 is computing in evaluate (train.py:36)" in found.summary


# ---- locks of files ---------------------------------------------------------------------------------------

PREPARES = (torch_frame("download_and_prepare", "datasets/builder.py", 870), user("get_data", 31))
POLLS = (torch_frame("BaseFileLock.acquire", "filelock/_api.py", 344), *PREPARES)
READS = (
    stdlib("SSLSocket.read", "ssl.py", 1103),
    torch_frame("http_get", "huggingface_hub/file_download.py", 420),
    *PREPARES,
)


def test_the_rank_at_work_under_a_file_lock_is_named_where_the_others_wait_for_the_lock() -> None:
    found = one_look(*(a_rank(rank).stuck_in(*POLLS) for rank in (0, 1, 3)), a_rank(2).stuck_in(*READS))
    assert said(found) == ("RankNonCommHang", "network", "medium", (2,), "8")
    assert "ranks 0-1,3 wait for a file lock; rank 2 went past it in the same function" in facts_of(found)


def test_a_rank_elsewhere_may_hold_the_lock_with_less_confidence() -> None:
    other = a_rank(2).stuck_in(user("convert", 50))
    found = one_look(*(a_rank(rank).stuck_in(*POLLS) for rank in (0, 1, 3)), other)
    assert (found.culprits, found.confidence) == ((2,), "low")


def test_all_at_a_file_lock_or_a_lock_of_the_process_connect_nobody() -> None:
    assert one_look(*(a_rank(rank).stuck_in(*POLLS) for rank in range(3))).culprits == ()
    own = (stdlib("Lock.acquire", "threading.py", 9), *PREPARES)
    found = one_look(*(a_rank(rank).stuck_in(*own) for rank in (0, 1, 3)), a_rank(2).stuck_in(*READS))
    assert found.culprits == ()


# ---- who had the GIL, and what records prove --------------------------------------------------------------


def test_a_thread_that_had_the_gil_beside_the_main_thread_is_told() -> None:
    holder = ThreadStack(
        99, "Thread-9", (torch_frame("cudaHostUnregister", "torch/cuda/__init__.py"), user("unpin", 58)),
        holds_gil=True, active=True,
    )  # fmt: skip
    stuck = a_rank(1).stuck_in(user("forward_step", 88)).but(others=(holder,))
    found = one_look(a_rank(0).waiting_in(), stuck, a_rank(2).waiting_in())
    assert found.culprits == (1,)
    assert "thread Thread-9 had the GIL in unpin (train.py:58), in cudaHostUnregister" in facts_of(found)


def test_a_rank_that_records_show_missing_is_named_though_it_ran_at_the_look() -> None:
    ranks = [a_rank(rank).waiting_in() for rank in (0, 1)]
    job = a_job(*ranks, a_rank(2).stuck_in(user("compute_map", 88)).but(active=True), facts=False)
    calls = [
        a_record(*steps(54), call(seq=55, ended=False)),
        a_record(*steps(54), call(seq=55, ended=False)),
        a_record(*steps(54)),
    ]
    with_records = replace(
        job, ranks=tuple(replace(one, record=record) for one, record in zip(job.ranks, calls, strict=True))
    )
    found = judge(with_records)
    assert (found.verdict, found.culprits, found.confidence, found.rule) == (
        "RankNonCommHang",
        (2,),
        "low",
        "4",
    )
    without = judge(job)
    assert (without.verdict, without.culprits) == ("Unknown", ())


# ---- where ways part --------------------------------------------------------------------------------------


def test_decorators_are_not_where_the_ways_of_ranks_part() -> None:
    nvtx = torch_frame("instrument_w_nvtx.<locals>.wrapped_fn", "deepspeed/utils/nvtx.py", 20)

    def through(rank: int, call_name: str, step: str) -> ARank:
        return a_rank(rank).but(
            frames=(
                *collective(call_name)[:2],
                torch_frame(step, "deepspeed/runtime/engine.py", 40),
                nvtx,
                torch_frame("training_step", "transformers/trainer.py", 3749 if step == "backward" else 3760),
                user("main", 212),
            )
        )

    found = one_look(
        through(0, "all_reduce", "step"), through(1, "reduce_scatter_tensor", "backward"),
        through(2, "reduce_scatter_tensor", "backward"),
    )  # fmt: skip
    (parting,) = (fact for fact in facts_of(found) if "went" in fact)
    assert "wrapped_fn" not in parting
    assert "step" in parting
    assert "backward" in parting
