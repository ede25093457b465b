"""Who is a rank, and what it says when it cannot report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.watchdog import environment, probe
from rankscope.watchdog.probe import boot

RANK = {
    "RANK": "5",
    environment.PAGE: "/job/progress.page",
    environment.SLOT: "1",
    environment.AGENT_PID: "77",
    environment.TIMER_FILE: "/job/timers",
}


def test_rank_page_and_slot_make_a_rank() -> None:
    assert boot.claim_of(RANK, pid=10) == boot.Claim(5, "/job/progress.page", 1, 77, "/job/timers")


def test_agent_and_pipe_may_be_missing() -> None:
    bare = {name: RANK[name] for name in ("RANK", environment.PAGE, environment.SLOT)}
    assert boot.claim_of(bare, pid=10) == boot.Claim(5, "/job/progress.page", 1, 0, "")


@pytest.mark.parametrize("missing", ["RANK", environment.PAGE, environment.SLOT])
def test_without_one_of_them_it_is_no_rank(missing: str) -> None:
    assert boot.claim_of({name: value for name, value in RANK.items() if name != missing}, pid=10) is None


def test_the_probe_can_be_switched_off() -> None:
    assert boot.claim_of(RANK | {environment.PROBE: "0"}, pid=10) is None
    assert boot.claim_of(RANK | {environment.PROBE: "1"}, pid=10) is not None


def test_a_foreign_mark_makes_a_child_and_the_own_one_a_rank_executed_again() -> None:
    assert boot.claim_of(RANK | {environment.RANK_PID: "9"}, pid=10) is None
    assert boot.claim_of(RANK | {environment.RANK_PID: "10"}, pid=10) is not None


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {environment.PAGE: "/nowhere/progress.page", environment.AGENT_PID: ""},
            "no progress page /nowhere/",
        ),
        ({environment.AGENT_PID: "999999999"}, "the agent (pid 999999999) is gone"),
        ({"RANK": "first"}, "invalid literal for int()"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    change: dict[str, str], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = RANK | change
    assert boot.boot(environ) is False
    assert boot.running() is None
    assert environment.RANK_PID not in environ
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"rankscope: {line}")
    assert err.endswith("; training runs without progress reports\n")
    assert err.count("\n") == 1


def test_a_file_that_is_no_page_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.csv"
    file.write_bytes(b"1,2,3\n" * 2000)
    assert boot.boot(RANK | {environment.PAGE: str(file), environment.AGENT_PID: ""}) is False
    assert "not a progress page" in capfd.readouterr().err
    assert file.read_bytes() == b"1,2,3\n" * 2000


@pytest.mark.parametrize(("scope", "asked"), [("0\n", False), ("1\n", True), ("2\n", False), (None, False)])
def test_yama_is_asked_only_where_it_restricts_to_ancestors(
    tmp_path: Path, scope: str | None, asked: bool
) -> None:
    file = tmp_path / "ptrace_scope"
    if scope is not None:
        file.write_text(scope)
    assert boot.let_trace(os.getpid(), scope_file=str(file)) is asked


def test_the_probe_comes_first_and_the_users_own_path_stays_as_it_was() -> None:
    site = probe.site_folder()
    assert (Path(site) / "sitecustomize.py").is_file()
    assert probe.pythonpath(None) == probe.pythonpath("") == site
    assert probe.pythonpath("/a:") == f"{site}:/a:"
    assert probe.pythonpath(":/a::/b:") == f"{site}::/a::/b:"
