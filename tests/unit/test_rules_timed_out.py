"""What the lines of a watchdog that ran out of time tell, without a stack."""

from __future__ import annotations

import pytest
from tests.watchdog_lines import all_but, caught, of_log, summary, told


@pytest.mark.parametrize("seq", [1, 9931])
def test_a_rank_that_was_told_of_a_time_out_and_never_entered_is_named(seq: int) -> None:
    last = seq - 1 if seq > 1 else -1
    diagnosis, _ = of_log(*(caught(rank, seq) for rank in (0, 1, 3)), told(2, last))
    assert (diagnosis.verdict, diagnosis.culprits) == ("RankNonCommHang", (2,))
    assert diagnosis.confidence == "low"
    assert {row.rank for row in diagnosis.ranks if row.role == "victim"} == {0, 1, 3}


def test_ranks_within_a_group_are_not_taken_for_global_ones() -> None:
    group = "23(TENSOR_MODEL_PARALLEL_GROUP)"
    lines = [caught(rank, 300, group=group, local=rank - 4) for rank in (4, 5, 7)]
    diagnosis, _ = of_log(*lines, told(6, 299, group=group, local=2))
    assert diagnosis.culprits == (6,)


def test_a_rank_that_tells_of_another_group_is_not_missing_from_this_one() -> None:
    lines = [caught(rank, 300, group="23(tp)", local=rank - 4) for rank in (4, 5, 7)]
    diagnosis, _ = of_log(*lines, told(6, 12), told(0, 12))
    assert diagnosis.verdict == "Unknown"
    diagnosis, _ = of_log(*all_but(4, 2), told(2, 40, group="7(tp)", local=0))
    assert diagnosis.verdict == "Unknown"


ABORTED = {"rank0": -6, "rank2": -6, "rank3": -15}


def test_a_rank_that_its_own_watchdog_aborts_is_no_cause() -> None:
    diagnosis, _ = of_log(*all_but(4, 3), told(3, 9930), summary(1, -6, **ABORTED))
    assert (diagnosis.verdict, diagnosis.culprits) == ("RankNonCommHang", (3,))
    assert "ranks 0-2 ended as a consequence" in diagnosis.summary
    assert any("the end of ranks 0-2 is a consequence" in line.fact for line in diagnosis.evidence)


def test_a_container_s_code_of_an_abort_is_one() -> None:
    diagnosis, _ = of_log(*all_but(4, 3), told(3, 9930), summary(1, 134))
    assert diagnosis.culprits == (3,)


def test_who_failed_for_a_reason_of_its_own_stays_the_cause() -> None:
    diagnosis, _ = of_log(*all_but(4, 3), summary(3, 1, rank0=-6, rank1=-6, rank2=-6))
    assert (diagnosis.verdict, diagnosis.culprits) == ("Exited", (3,))


@pytest.mark.parametrize(
    "lines",
    [
        [*all_but(4, 1), summary(1, -6)],
        [
            *all_but(4),
            "[rank1]: Traceback (most recent call last):",
            '[rank1]:   File "t.py", line 3, in main',
            "[rank1]: ValueError: bad sample",
            summary(1, -6),
        ],
    ],
)
def test_an_abort_that_nothing_says_is_a_watchdog_s_stays_a_cause(lines: list[str]) -> None:
    diagnosis, _ = of_log(*lines)
    assert (diagnosis.verdict, diagnosis.culprits) == ("Exited", (1,))


def test_ranks_that_raise_what_their_watchdog_said_are_no_cause() -> None:
    raised = (
        "[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File 't.py', line 3, in main\n"
        "[rank{0}]: RuntimeError: [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9931, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600020 milliseconds"
    )
    lines = [raised.format(rank) for rank in range(3)]
    diagnosis, _ = of_log(*all_but(4, 3), told(3, 9930), *lines, summary(1, 1))
    assert (diagnosis.verdict, diagnosis.culprits) == ("RankNonCommHang", (3,))


def test_everyone_in_one_collective_for_long_is_a_hang_of_the_layer_that_names_nobody() -> None:
    diagnosis, _ = of_log(*all_but(4))
    assert (diagnosis.verdict, diagnosis.rule, diagnosis.confidence) == ("RankCommHang", "7", "low")
    assert diagnosis.culprits == ()
    assert "for 600 s" in diagnosis.summary
    assert {row.role for row in diagnosis.ranks} == {"victim"}
    aborted, _ = of_log(*all_but(4), summary(1, -6))
    assert (aborted.verdict, aborted.culprits) == ("RankCommHang", ())
    assert "rank 1 ended as a consequence" in aborted.summary


@pytest.mark.parametrize(
    "lines",
    [
        [*all_but(4, 3), caught(3, 9930)],
        [*all_but(4, 3), caught(3, group="7(dp)")],
        [caught(0)],
    ],
)
def test_not_everyone_in_one_collective_is_no_hang_of_the_layer_as_a_whole(lines: list[str]) -> None:
    diagnosis, _ = of_log(*lines)
    assert diagnosis.rule != "7"


COMPLETION = "gpu-b07:984:1357 [0] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer"


@pytest.mark.parametrize(
    "error",
    [
        "172.36.143.59<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid ::1",
        "172.36.143.59<44206> with error 12, opcode 0, len 0, vendor err 129",
        "172.36.143.59<44206> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129",
    ],
)
def test_who_lost_an_infiniband_connection_is_named_with_its_other_end(error: str) -> None:
    lines = [f"[default{rank}]:{line}" for rank in range(4) for line in caught(rank).splitlines() if line]
    flushed = error.replace("12", "5") if "IBV" not in error else error.replace("(12)", "(5)")
    diagnosis, _ = of_log(
        *lines, f"[default2]:{COMPLETION} {error}", f"[default0]:{COMPLETION} {flushed.replace('59', '60')}"
    )
    assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("RankCommHang", "network", (2,))
    assert "172.36.143.59;" in diagnosis.summary
    assert diagnosis.confidence == "low"


def test_a_lost_connection_that_most_ranks_tell_of_names_none_of_them() -> None:
    error = "10.0.0.1<1> with status=12 opcode=0"
    lines = [f"[rank{rank}]:{COMPLETION} {error}" for rank in range(3)]
    diagnosis, _ = of_log(*all_but(4), *lines)
    assert (diagnosis.verdict, diagnosis.culprits) == ("RankCommHang", ())
    assert "10.0.0.1" in diagnosis.summary


STUCK = "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring"


def test_watchdogs_that_stand_still_on_most_ranks_accuse_none_of_them() -> None:
    lines = [f"[rank{rank}]:[E626 ProcessGroupNCCL.cpp:1743] {STUCK}" for rank in (0, 1, 3)]
    diagnosis, _ = of_log(caught(2), *lines)
    assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("Unknown", "none", ())
    assert "the NCCL watchdog of ranks 0-1,3 got stuck for 480 s" in diagnosis.summary


RAISED = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/home/u/train.py", line 20, in main
[rank{0}]:     dist.init_process_group("nccl")
[rank{0}]: torch.distributed.DistStoreError: {1}"""
CLIENTS = "Timed out after 601 seconds waiting for clients. {}/{} clients joined."
ON_STORE = (
    "Timed out initializing process group in store based barrier on rank {0}, for key: "
    "store_based_barrier_key:1 (world_size=4, num_workers_joined=3, timeout=0:10:00)"
)


def test_a_start_up_that_some_did_not_join_tells_how_many() -> None:
    diagnosis, _ = of_log(RAISED.format(0, CLIENTS.format(15, 16)))
    assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("RankNonCommHang", "startup", ())
    assert "15 of 16 ranks joined in 601 s: 1 of them did not" in diagnosis.summary
    assert "closed" not in diagnosis.summary


def test_who_alone_does_not_say_that_it_waited_for_the_others_is_named() -> None:
    diagnosis, _ = of_log(*(RAISED.format(rank, ON_STORE.format(rank)) for rank in (0, 1, 3)))
    assert (diagnosis.kind, diagnosis.culprits) == ("startup", (2,))
    few, _ = of_log(*(RAISED.format(rank, ON_STORE.format(rank)) for rank in (0, 3)))
    assert (few.kind, few.culprits) == ("startup", ())


def test_who_failed_in_its_start_up_is_why_the_others_waited() -> None:
    failed = RAISED.format(2, "x").rpartition("\n")[0] + "\n[rank2]: ImportError: no module"
    diagnosis, _ = of_log(RAISED.format(0, CLIENTS.format(3, 4)), failed)
    assert (diagnosis.verdict, diagnosis.culprits) == ("Exited", (2,))


def test_what_a_log_says_is_no_flight_record_and_no_look() -> None:
    diagnosis, _ = of_log(*all_but(4, 2), told(2, 9930))
    assert {line.source for line in diagnosis.evidence} == {"log"}
    unknown, _ = of_log(*all_but(4, 2))
    assert {line.source for line in unknown.evidence} == {"log"}
    assert "second look" not in unknown.would_change


def test_ranks_that_waited_some_milliseconds_more_or_less_say_the_same() -> None:
    diagnosis, _ = of_log(*all_but(4))
    (said,) = [line.fact for line in diagnosis.evidence if "Watchdog caught" in line.fact]
    assert said.startswith("ranks 0-3: Watchdog caught")
    assert "ran for 600020 to 600023 milliseconds" in said


C10D = "all_reduce from /opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:2810"
MANY = (C10D, "sync_grads from /workspace/train.py:410", "<module> from /workspace/train.py:500")
ODD = (
    "broadcast from /opt/venv/lib/python3.12/site-packages/torch/x.py:9",
    "maybe_save from /app/ckpt.py:55",
)


@pytest.mark.parametrize("worker", ["", "[default{0}]:"])
def test_the_stack_of_a_call_that_ran_out_of_time_is_where_the_rank_made_it(worker: str) -> None:
    whole = [caught(rank, 77, stack=MANY) for rank in (0, 1, 3)]
    whole.append(caught(2, 77, op="BROADCAST", size=1, stack=ODD))
    said = zip((0, 1, 3, 2), whole, strict=True)
    diagnosis, _ = of_log(
        *(worker.format(rank) + line for rank, lines in said for line in lines.splitlines())
    )
    assert (diagnosis.kind, diagnosis.culprits) == ("desync", (2,))
    assert diagnosis.location is not None
    assert (diagnosis.location.file, diagnosis.location.line, diagnosis.location.rank) == (
        "/app/ckpt.py",
        55,
        2,
    )
    assert any("sync_grads (/workspace/train.py:410)" in line.fact for line in diagnosis.evidence)


def test_stacks_of_two_workers_that_are_mixed_stay_apart() -> None:
    one, other = caught(0, 77, stack=MANY), caught(1, 77, op="BROADCAST", size=1, stack=ODD)
    mixed = [
        f"[default{rank}]:{line}"
        for pair in zip(one.splitlines(), [*other.splitlines(), ""], strict=True)
        for rank, line in enumerate(pair)
    ]
    diagnosis, _ = of_log(*mixed)
    stacks = [line for line in diagnosis.evidence if "Stack trace" in line.fact]
    assert [(line.rank, line.fact.split()[6]) for line in stacks] == [(0, "sync_grads"), (1, "maybe_save")]
