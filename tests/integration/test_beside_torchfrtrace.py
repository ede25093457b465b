"""The page that sets our answers beside torchfrtrace's says what both say today."""

from __future__ import annotations

from pathlib import Path

from benchmarks.beside_torchfrtrace import CASES, answers

PAGE = (Path(__file__).parents[2] / "docs" / "how-it-works" / "torchfrtrace.md").read_text()
# torchfrtrace needs a package for them that the tests do not have.
WITHOUT_TABULATE = [case for case in CASES if case.name != "batches"]


def test_the_page_shows_what_both_answer() -> None:
    for one in answers(WITHOUT_TABULATE):
        assert one.ours.culprits == one.culprits, one.case.name
        assert one.row in PAGE
        if not one.case.truth.startswith("that rank"):
            assert one.our_text in PAGE, one.case.name


def test_every_case_is_on_the_page() -> None:
    assert all(f"| {case.name} | {case.truth} |" in PAGE for case in CASES)
    assert PAGE.count("\n### ") == len(CASES)
