"""Tool by case over real dumps (tests/data/cases): each tool's dumps alone give the truth, or say Unknown.

What a tool cannot show is listed here with the reason, so that an answer that gets worse, or better, fails.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import zstandard
from tests.tool_table import ALL, Answer, answers

ARCHIVE = Path(__file__).parents[1] / "data" / "cases" / "dumps.tar.zst"
PYSPY_PLAIN = ("pyspy", "pyspy.json", "pyspy_locals.txt")
PYSPY_NATIVE = ("pyspy_native.json", "pyspy_native.txt")

# (case, tool) and what is missing from its dumps.
UNKNOWN = {
    # C calls leave no Python frame, and these tools print no source line: who waits looks like who sleeps.
    **{
        ("async_wait", tool): "no wait is visible"
        for tool in (*PYSPY_PLAIN, "pyspy_nonblocking.txt", "faulthandler")
    },
    # All three processes had ended: every dump is empty.
    **{
        ("crash", tool): "no stack of any rank"
        for tool in (
            *PYSPY_PLAIN, *PYSPY_NATIVE, "pyspy_nonblocking.txt",
            "pystack", "pystack_locals", "pystack_native", "pystack_nonblock", "faulthandler",
        )
    },
    # State D: blocking tools got nothing of rank 1, and there is no dump of its vfork child by them.
    **{
        ("dstate", tool): "no stack of rank 1"
        for tool in ("pyspy.json", "pyspy_locals.txt", *PYSPY_NATIVE, "pystack_locals", "pystack_native")
    },
    # Stopped: py-spy fails unless it is told not to block; the words that prove it are on its stderr.
    **{("sigstop", tool): "no stack of rank 1" for tool in (*PYSPY_PLAIN, *PYSPY_NATIVE)},
    # Computing in native code at the only look: slow, or stuck there.
    **{
        ("slow", tool): "one look at a rank that computes"
        for tool in (
            *PYSPY_PLAIN, *PYSPY_NATIVE, "pyspy_nonblocking.txt",
            "pystack", "pystack_locals", "pystack_native", "pystack_nonblock",
        )
    },
}  # fmt: skip
LOW = {("slow", "faulthandler"): "it does not tell whether a thread runs"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """All answers over all cases."""
    folder = tmp_path_factory.mktemp("cases")
    with zstandard.open(ARCHIVE, "rb") as packed, tarfile.open(fileobj=io.BytesIO(packed.read())) as archive:
        archive.extractall(folder, filter="data")
    return list(answers(folder))


def test_no_tool_names_a_wrong_culprit(table: list[Answer]) -> None:
    assert [(one.case, one.tool) for one in table if one.outcome == "WRONG"] == []


def test_every_pair_is_the_truth_or_listed_with_what_is_missing(table: list[Answer]) -> None:
    pairs = {(one.case, one.tool): one.outcome for one in table if one.tool != ALL}
    assert {pair for pair, outcome in pairs.items() if outcome == "Unknown"} == set(UNKNOWN)
    assert {pair for pair, outcome in pairs.items() if outcome == "low"} == set(LOW)


def test_at_most_a_fifth_is_unknown(table: list[Answer]) -> None:
    pairs = [one for one in table if one.tool != ALL]
    assert len(pairs) == 228
    assert 5 * sum(one.outcome == "Unknown" for one in pairs) <= len(pairs)


def test_all_files_of_a_case_together_give_the_truth(table: list[Answer]) -> None:
    wrong = [one.case for one in table if one.tool == ALL and one.outcome != "truth"]
    assert wrong == []


def test_a_healthy_job_is_not_called_a_hang(table: list[Answer]) -> None:
    verdicts = {one.diagnosis.verdict for one in table if one.case in ("ring_wrap", "straggler")}
    assert verdicts == {"Unknown", "RankNonCommSlow"}


def test_no_answer_from_one_look_is_sure(table: list[Answer]) -> None:
    sure = [(one.case, one.tool) for one in table if one.diagnosis.confidence == "high"]
    assert sure == []


def test_an_unknown_answer_names_the_ranks_that_were_not_seen(table: list[Answer]) -> None:
    silent = [
        (one.case, one.tool)
        for one in table
        if UNKNOWN.get((one.case, one.tool), "").startswith("no stack") and not one.diagnosis.unobserved
    ]
    assert silent == []
