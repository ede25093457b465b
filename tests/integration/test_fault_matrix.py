"""The fault matrix's own command: one real row, and what it says of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.matrix import ANYWHERE, NO_INCIDENT, ROWS, Answer

from rankscope.agent.demo.faults import FAULTS
from rankscope.diag.store.incidents import incident_folders

ROOT = Path(__file__).parents[2]


def _faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_a_right_row_is_printed_with_what_was_expected_and_found_and_its_records_are_kept(
    tmp_path: Path,
) -> None:
    done = _faults("--only", "killed", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    expected, found = (
        line.split() for line in done.stdout.splitlines() if "expected" in line or "found" in line
    )
    assert expected == ["killed", "expected", "Exited", "0", "dead", "any"]
    assert found[:5] == ["found", "Exited", "0", "dead", "-"]
    assert found[-1] == "ok"
    (incidents,) = tmp_path.glob("killed-*/job/home/jobs/*/incidents")
    assert len(incident_folders(incidents)) == 1


def test_a_row_that_does_not_exist_is_a_usage_error() -> None:
    done = _faults("--only", "no_such_row")
    assert done.returncode == 2
    assert "no_such_row" in done.stderr


def test_every_fault_of_the_demonstration_has_a_row_and_not_all_the_same_culprit() -> None:
    rows = {row.name: row for row in ROWS}
    assert len(rows) == len(ROWS)
    assert rows.keys() >= FAULTS.keys()
    assert len({rows[name].expected.culprits for name in FAULTS}) == 3


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Answer("RankNonCommHang", "1", "lock", "write"), ()),
        (Answer("RankNonCommHang", "1", "lock", "MetricsWriter.write"), ()),
        (Answer("RankNonCommHang", "1", "lock", "rewrite"), ("function",)),
        (Answer("RankCommHang", "0-1", "lock", "write"), ("verdict", "culprits")),
        (NO_INCIDENT, ("verdict", "culprits", "kind", "function")),
    ],
)
def test_what_is_wrong_is_named_field_by_field(found: Answer, wrong: tuple[str, ...]) -> None:
    assert Answer("RankNonCommHang", "1", "lock", "write").differs_in(found) == wrong


def test_any_function_will_do_where_the_process_left_none() -> None:
    expected = Answer("Exited", "0", "dead", ANYWHERE)
    assert expected.differs_in(Answer("Exited", "0", "dead", "-")) == ()
    assert expected.differs_in(Answer("Exited", "0", "dead", "main")) == ()


def test_an_incident_in_a_healthy_job_is_wrong() -> None:
    assert NO_INCIDENT.differs_in(Answer("Healthy", "-", "none", "-")) == ("verdict", "kind")
