"""The commands with standard streams that are closed or full: a status that tells, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MAIN = "import sys; from rankscope.diag.main import main; sys.exit(main())"
NO_SPACE = b"the answer cannot be written: No space left on device\n"


def diag(redirection: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``diag`` with the streams that a shell gives it."""
    script = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-c", MAIN, *words],
        capture_output=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("doctor", "--json"), ("doctor",)])
def test_an_answer_that_cannot_be_written_is_status_1_and_a_line(words: Sequence[str]) -> None:
    done = diag("> /dev/full", *words)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.endswith(NO_SPACE)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "status"),
    [(("doctor",), 0), (("analyze", "--pid", "4194304"), 2), (("no-such-verb",), 2), (("--version",), 0)],
)
def test_a_closed_stream_is_status_1_only_where_the_answer_is_lost(
    redirection: str, words: Sequence[str], status: int
) -> None:
    done = diag(redirection, *words)
    is_lost = status == 0 and redirection != "2>&-"
    assert done.returncode == (1 if is_lost else status)
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") <= 1 or words == ("doctor",)


def test_without_torch_run_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "run", "train.py"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("diag run: torch cannot be imported (No module named 'torch')")
