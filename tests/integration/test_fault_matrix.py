"""The fault matrix's own command: two real rows, and what it says of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.matrix import ROWS
from tests.faults.rows import ANYWHERE, NO_INCIDENT, SUITES, Answer, Found, Passing, Silent, differences

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
    (incidents,) = tmp_path.glob("killed-*/home/jobs/*/incidents")
    assert len(incident_folders(incidents)) == 1


def test_a_healthy_row_is_run_to_the_end_of_its_job_and_found_silent() -> None:
    done = _faults("--only", "prints_nothing")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (line.split() for line in done.stdout.splitlines() if "found" in line)
    assert found == ["found", "none", "-", "-", "-", "-", "ok"]


def test_a_row_that_does_not_exist_is_a_usage_error() -> None:
    done = _faults("--only", "no_such_row")
    assert done.returncode == 2
    assert "no_such_row" in done.stderr


def test_every_suite_has_rows_and_only_waits_too_long_for_a_test_have_a_flag() -> None:
    assert {row.suite for row in ROWS} == set(SUITES)
    flags = {flag.partition("=")[0] for row in ROWS for flag in row.flags}
    assert flags <= {"--job-exit-hang-interval"}


def test_the_programs_know_nothing_of_the_product() -> None:
    programs = [path.read_text() for path in (ROOT / "tests" / "faults" / "programs").glob("*.py")]
    assert programs
    assert not [text for text in programs if "rankscope" in text or "RANKSCOPE" in text]


def test_every_fault_of_the_demonstration_has_a_row_and_not_all_the_same_culprit() -> None:
    rows = {row.name: row for row in ROWS}
    assert len(rows) == len(ROWS)
    assert rows.keys() >= FAULTS.keys()
    expected = [rows[name].expected for name in FAULTS]
    assert len({answer.culprits for answer in expected if isinstance(answer, Answer)}) == 3


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


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Found(NO_INCIDENT, exit_code=0), ()),
        (Found(NO_INCIDENT, exit_code=0, actions=("notify",)), ()),
        (Found(NO_INCIDENT, exit_code=1), ("exit code",)),
        (Found(NO_INCIDENT), ("exit code",)),
        (Found(NO_INCIDENT, exit_code=0, actions=("log", "restart")), ("action",)),
        (Found(Answer("Healthy", "-", "none"), exit_code=0), ("verdict", "kind")),
    ],
)
def test_a_healthy_job_ends_well_without_an_incident(found: Found, wrong: tuple[str, ...]) -> None:
    assert differences(Silent(), found) == wrong


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Found(NO_INCIDENT, exit_code=0), ()),
        (Found(Answer("Unknown", "1"), exit_code=0, severities=("info",)), ()),
        (Found(Answer("RankNonCommHang", "1"), exit_code=0, severities=("info", "warning")), ("severity",)),
        (Found(Answer("Unknown", "1"), exit_code=0, severities=("info",), open_incidents=1), ("recovered",)),
        (Found(Answer("Unknown", "1"), exit_code=75, actions=("fail",)), ("exit code", "action")),
    ],
)
def test_who_is_alone_but_alive_may_be_mentioned_and_is_left_alone(
    found: Found, wrong: tuple[str, ...]
) -> None:
    assert differences(Passing("info"), found) == wrong
