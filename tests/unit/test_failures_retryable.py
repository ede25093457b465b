"""Whether a failure may be retried: real errors, exit codes, and what the user and the job name."""

from __future__ import annotations

import pytest
from tests.failures_factory import KnownError, known_errors

from rankscope.agent.failures.aftermath import is_aftermath, packaged_aftermath
from rankscope.agent.failures.retryable import judge, packaged_table

ERRORS = known_errors()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.what)
def test_a_real_error_is_judged(error: KnownError) -> None:
    for text in error.same:
        verdict = judge(error.exit_code, [text])
        assert verdict.retryable == error.retryable, verdict.because
        assert verdict.because


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.what)
def test_a_real_error_is_an_aftermath_or_not(error: KnownError) -> None:
    assert [is_aftermath(text) for text in error.same] == [error.aftermath] * len(error.same)


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (-15, True), (143, True), (-2, True), (130, True), (-10, True), (138, True), (75, True),
        (-9, False), (137, False), (-11, False), (139, False), (-6, False), (134, False), (-7, False),
        (1, False), (2, False), (3, False), (126, False), (127, False), (None, False), (255, False),
    ],
)  # fmt: skip
def test_a_bare_exit_code_is_judged(code: int | None, retryable: bool) -> None:
    assert judge(code, ()).retryable is retryable


def test_pythons_own_error_is_not_retried_whatever_else_it_mentions() -> None:
    assert not judge(1, ["ValueError: config says: Connection reset by peer"]).retryable


def test_lost_connections_in_the_log_do_not_make_another_error_retryable() -> None:
    end = ["NCCL WARN Connection reset by peer", "retrying"]
    assert not judge(1, ["RuntimeError: shape mismatch"], end=end).retryable
    assert judge(1, (), end=end).retryable


def test_a_killed_worker_is_retried_only_if_the_scheduler_says_so() -> None:
    assert not judge(-9, (), end=["NCCL WARN Connection reset by peer"]).retryable
    assert judge(-9, (), end=["slurmstepd: error: *** JOB 1 CANCELLED DUE TO PREEMPTION ***"]).retryable


def test_who_was_asked_to_end_has_no_other_reason() -> None:
    assert judge(-15, (), end=["No space left on device"]).because.startswith("ended by SIGTERM")


@pytest.mark.parametrize("keyword", ["Connect TIMEOUT", "shape"])
def test_a_named_text_makes_any_error_retryable(keyword: str) -> None:
    verdict = judge(1, ["ValueError: connect timeout of shape 3"], keywords=[keyword, ""])
    assert verdict == (True, f"{keyword!r} is named as retryable")


def test_a_named_text_is_found_at_the_end_of_the_log() -> None:
    assert judge(-11, (), end=["my own words", "more"], keywords=["own words"]).retryable


def test_a_blank_name_names_nothing() -> None:
    assert not judge(1, ["ValueError: x"], keywords=["", "  "]).retryable


@pytest.mark.parametrize("named", [139, -11])
@pytest.mark.parametrize("code", [139, -11])
def test_a_named_exit_code_holds_in_both_forms(named: int, code: int) -> None:
    assert judge(code, (), exit_codes=[named]) == (True, "exit code 139 is named as retryable")


def test_no_text_stands_in_both_lists() -> None:
    table = packaged_table()
    retried = {text.casefold() for entry in table.message for text in entry.texts}
    refused = {text.casefold() for entry in table.never for text in entry.texts}
    assert not retried & refused
    assert "" not in retried | refused


def test_a_code_has_one_meaning() -> None:
    codes = [code for entry in packaged_table().exit_code for code in entry.codes]
    assert len(codes) == len(set(codes))
    assert all(0 < code < 256 for code in codes)


def test_the_tables_have_the_schema_that_is_read() -> None:
    assert (packaged_table().schema, packaged_aftermath().schema) == (1, 1)
