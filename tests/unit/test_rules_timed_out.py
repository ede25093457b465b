"""What the lines of a watchdog that ran out of time tell, without a stack."""

from __future__ import annotations

import pytest
from tests.watchdog_lines import all_but, caught, of_log, told


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
