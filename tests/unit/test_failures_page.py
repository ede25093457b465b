"""The page of failures against the table it is made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.agent.failures.page import BEGIN, END, main, tables, with_tables
from rankscope.agent.failures.retryable import packaged_table, packaged_text

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "failures.md"


def test_the_page_is_fresh() -> None:
    page = PAGE.read_text("utf-8")
    hint = "run: python -m rankscope.agent.failures.page docs/reference/failures.md"
    assert with_tables(page) == page, hint


def test_every_entry_says_where_it_is_from() -> None:
    with pytest.raises(ValueError, match="without a comment"):
        tables(packaged_table(), packaged_text().replace("[[never]]  # Python's", "[[never]]\n# Python's"))


def test_a_page_without_a_place_for_the_tables_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no place"):
        with_tables("# Failures\n")


def test_only_the_tables_are_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before {BEGIN} old {END} after")
    assert main([str(page)]) == 0
    assert page.read_text().startswith(f"before {BEGIN}\n\n### Retried")
    assert page.read_text().endswith(f"{END} after")


def test_a_wrong_call_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: " in capsys.readouterr().err
