"""Rank sets as text."""

from __future__ import annotations

import pytest

from rankscope.diag.ranks import MAX_RANKS, fold_ranks, unfold_ranks


@pytest.mark.parametrize("text", ["", "0", "0-3,6", "7,9-10", f"0-{MAX_RANKS - 1}"])
def test_a_folded_set_is_read_back(text: str) -> None:
    assert fold_ranks(unfold_ranks(text)) == text


@pytest.mark.parametrize(
    "text",
    ["hello,,3-", ",", "1,", "3-", "-3", "3-1", "2,1", "1,1", "0-5,5", "1 ", "+1", "1_0", "\uff11", "1.0"],
)
def test_what_is_no_folded_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a set of ranks"):
        unfold_ranks(text)


@pytest.mark.parametrize(
    "text", ["0-99999999", f"0-{MAX_RANKS}", "9" * 100_000, ",".join(["0-999999"] * 1000)]
)
def test_more_ranks_than_any_job_has_are_refused_before_they_are_unfolded(text: str) -> None:
    with pytest.raises(ValueError, match="not a set of ranks"):
        unfold_ranks(text)
