"""``diag analyze --samples``: looks at what runs; of anything else it says in one line that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.diag.commands import analyze
from rankscope.diag.errors import UsageError
from rankscope.diag.store.files import make_folders, write_json
from rankscope.diag.store.job import JobFile, job_folder

ENDED = "2026-11-29T16:40:00Z"


def refusal(*arguments: str) -> str:
    with pytest.raises(UsageError) as raised:
        analyze.main(["--samples=5", *arguments])
    assert raised.value.exit_code == analyze.EXIT_USAGE
    return str(raised.value)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that has ended."""
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    folder = job_folder("of-yesterday")
    make_folders(folder.path)
    write_json(folder.job_file, JobFile("of-yesterday", ENDED, ("python",), ended=ENDED, result="failed"))
    return folder.path


def test_dumps_cannot_be_looked_at_again(tmp_path: Path) -> None:
    dump = tmp_path / "rank0.txt"
    dump.write_text("Process 7: python train.py\n")
    expected = "--samples looks at a running job, and dumps are not; leave it out"
    assert refusal(str(dump)) == refusal(str(dump), str(tmp_path)) == refusal("-") == expected


@pytest.mark.parametrize("flags", [(), ("--all",), ("--incident=latest",), ("--user-code=/src",)])
def test_a_job_that_has_ended_cannot_be_looked_at_again(stored: Path, flags: tuple[str, ...]) -> None:
    for name in ("of-yesterday", str(stored)):
        assert refusal(name, *flags).endswith("and job of-yesterday is shown as it is stored; leave it out")


def test_looks_stop_no_rank_so_that_c_frames_cannot_be_had() -> None:
    assert "stops no rank" in refusal("--native")
