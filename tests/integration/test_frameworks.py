"""Jobs of other people's frameworks under ``diag run``: the programs of the documentation, on the CPU.

One job each, two ranks, default settings: rank 1 hangs at a step, is explained with the script's own line,
gets what it waits for, and the job ends well.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.jobs import diag_run, last_line
from tests.pages.makers import DOCS

EXAMPLES = DOCS / "examples"
FILES = DOCS / "reference" / "files.md"
STEPS = 40


def stuck_line(program: Path) -> int:
    lines = program.read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.strip() == "return path.read_bytes()")


@pytest.mark.parametrize("framework", ["accelerate", "lightning"])
def test_a_hang_is_explained_with_the_scripts_own_line_and_the_steps_are_seen(
    framework: str, tmp_path: Path
) -> None:
    program = EXAMPLES / f"{framework}_job.py"
    shard = tmp_path / "shard"
    os.mkfifo(shard)
    script = [str(program), "--stuck-rank=1", f"--shard={shard}"]
    with diag_run(tmp_path / "job", ranks=2, script=script) as job:
        confirmed = job.wait_for_event("incident.confirmed")
        assert (confirmed.data["verdict"], confirmed.data["culprits"]) == ("RankNonCommHang", [1]), job.stderr
        with shard.open("wb"):
            pass  # the read ends, and the rank goes on
        assert job.finish() == 0, last_line(job)
        diagnosis = job.diagnosis()
        assert diagnosis.kind == "data_loading"
        assert diagnosis.location is not None
        assert Path(diagnosis.location.file) == program
        assert (diagnosis.location.function, diagnosis.location.line) == ("read_shard", stuck_line(program))
        assert job.events("incident.recovered")
        (cycle,) = job.events("cycle.ended")
        assert (cycle.data["result"], cycle.data["steps"]) == ("succeeded", STEPS)
        check_that_every_file_is_documented(job.records.path)


def check_that_every_file_is_documented(folder: Path) -> None:
    """Every file of a real job's folder is one that ``docs/reference/files.md`` tells of."""
    text = FILES.read_text()
    known = set(
        re.findall(
            r"[\w.-]+\.(?:jsonl|json|log|zst|lock|toml|page)(?:\.zst)?|\.lock|^token", text, re.MULTILINE
        )
    )
    stored = {path.name for path in folder.rglob("*") if path.is_file()}
    assert stored <= known, stored - known
