"""What the fault matrix' command makes of trials that are not right, without a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults import __main__ as command
from tests.faults.draw import Draw
from tests.faults.rows import Row, Silent


def _cannot(_folder: Path, _draw: Draw) -> list[str]:
    raise ValueError("no such program")


def test_a_row_that_cannot_be_run_is_wrong_and_the_others_are_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tuple(Row(name, "diagnosis", f"the fault {name}", Silent(), _cannot) for name in ("one", "two"))
    monkeypatch.setattr(command, "ROWS", rows)
    results = tmp_path / "faults.md"
    assert command.main(["--seed=4", f"--results={results}"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 4, 8 trials\n")
    assert printed.count("ValueError: no such program") == 8
    assert "wrong: one-run-4-" in printed
    table = results.read_text()
    assert table.startswith("# The fault matrix, seed 4\n")
    assert table.count("| not run, -, -, -, - | - | **class** |") == 8


def test_without_a_seed_one_is_drawn_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROWS", (Row("one", "busy", "a fault", Silent(), _cannot, zero=False),))
    assert command.main(["--mode=run"]) == 1
    seed = int(capsys.readouterr().out.split()[1].rstrip(","))
    assert command.main(["--mode=run", f"--seed={seed}"]) == 1
    assert f"seed {seed}, 1 trials" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["--jobs=0", "--repeat=-1", "--mode=both", "--seed=x", "--only=none"])
def test_a_wrong_command_line_is_refused(words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([words])
    assert caught.value.code == 2
