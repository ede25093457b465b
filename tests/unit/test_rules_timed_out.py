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
