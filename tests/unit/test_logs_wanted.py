"""When output is captured."""

from __future__ import annotations

import itertools

import pytest

from rankscope.agent.logs.wanted import capture_wanted


def test_auto_captures_where_nothing_speaks_against_it() -> None:
    wanted, reason = capture_wanted(
        "auto", redirects_given=False, tee_given=False, stdin_tty=False, stdout_tty=True
    )
    assert wanted
    assert reason == "log capture is on"


@pytest.mark.parametrize(
    ("redirects", "tee", "named"),
    [(True, False, "--redirects"), (False, True, "--tee"), (True, True, "--redirects and --tee")],
)
def test_auto_leaves_torchruns_own_files_alone(redirects: bool, tee: bool, named: str) -> None:
    wanted, reason = capture_wanted(
        "auto", redirects_given=redirects, tee_given=tee, stdin_tty=False, stdout_tty=False
    )
    assert not wanted
    assert named in reason


def test_auto_stays_away_from_a_person_at_a_terminal() -> None:
    wanted, reason = capture_wanted(
        "auto", redirects_given=False, tee_given=False, stdin_tty=True, stdout_tty=True
    )
    assert not wanted
    assert "log signals are off" in reason


def test_what_is_asked_for_outright_wins_over_everything() -> None:
    for redirects, tee, stdin, stdout in itertools.product((False, True), repeat=4):
        on, reason = capture_wanted(
            "on", redirects_given=redirects, tee_given=tee, stdin_tty=stdin, stdout_tty=stdout
        )
        assert on
        assert ("not used" in reason) == (redirects or tee)
        off, _ = capture_wanted(
            "off", redirects_given=redirects, tee_given=tee, stdin_tty=stdin, stdout_tty=stdout
        )
        assert not off
