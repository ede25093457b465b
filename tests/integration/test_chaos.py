"""Some rounds of ``make chaos`` that have something of everything; and what is drawn and expected."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.checks import wrong
from tests.chaos.draw import draw
from tests.chaos.expected import Expected, Verdict, expected_of
from tests.chaos.job import ChaosJob
from tests.chaos.onlooker import Onlooker
from tests.chaos.plan import STEPS, Act, Deed, Round, Settings
from tests.chaos.rows import FAULTS
from tests.chaos.run import Seen
from tests.deadline import DEADLINE

ROOT: Final = Path(__file__).parents[2]
SEED: Final = 7
ROUNDS: Final = (4, 10, 14, 16, 35, 38, 85)
"""The cheapest of the first sixty seeds that have all kinds of things in them."""
PLAIN: Final = Settings(2, "auto", "OnFailure", None, 5.0, "on", notices=False)


def _round(*acts: Act, settings: Settings = PLAIN) -> Round:
    return Round(1, 1, "worker", 2, settings, acts=acts)


@pytest.mark.timeout(660)
def test_a_few_rounds_come_to_what_was_expected_of_them(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        f"--seed={SEED}",
        f"--these={','.join(map(str, ROUNDS))}",
        f"--keep={tmp_path}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"seed {SEED}, {len(ROUNDS)} rounds\n")
    lines = re.findall(r"^ +(\d+)  (ok|wrong|skipped)", done.stdout, re.MULTILINE)
    assert sorted(int(number) for number, _word in lines) == list(ROUNDS)
    assert {word for _number, word in lines} <= {"ok", "skipped"}
    assert sum(word == "ok" for _number, word in lines) >= len(ROUNDS) - 2, "no root: two rounds need a mount"


def done_to(one: Round) -> set[Deed]:
    """What is done to a round's job before it has ended, or stands on for good."""
    over = [expected_of(replace(one, acts=one.acts[:count])).steps is None for count in range(len(one.acts))]
    return {act.deed for act, is_over in zip(one.acts, over, strict=True) if not is_over}


def test_the_rounds_of_the_test_have_something_of_everything() -> None:
    rounds = [draw(SEED, number) for number in ROUNDS]
    assert {one.kind for one in rounds} == {
        *("fault", "healthy", "worker", "agent", "full disk", "stalled folder"),
    }
    deeds = {deed for one in rounds for deed in done_to(one)}
    assert deeds >= {"worker SIGKILL", "worker SIGSTOP", "worker SIGTERM", "agent SIGKILL", "agent SIGTERM"}
    assert {one.place for one in rounds} == {"plain", "small", "frozen"}
    assert any(FAULTS[one.row].hangs for one in rounds if one.kind == "fault")
    expected = [expected_of(one) for one in rounds]
    assert {one.exit_code for one in expected} == {0, 1, 75, 93}
    assert {action for one in expected for action in one.actions} >= {"restart", "fail"}


def test_a_seed_draws_the_same_rounds_again_and_another_one_others() -> None:
    assert [draw(7, number) for number in range(50)] == [draw(7, number) for number in range(50)]
    assert [draw(7, number).what for number in range(20)] != [draw(8, number).what for number in range(20)]


def test_two_kills_use_two_restarts_and_a_third_one_ends_the_job() -> None:
    kills = [Act("worker SIGKILL", "step", step, 1) for step in (10, 20, 30)]
    assert expected_of(_round(*kills[:2])) == Expected(
        actions=("restart", "restart"),
        verdicts=(Verdict("Exited", (1,)),) * 2,
        faults=2,
        restarts=2,
        launches=3,
        steps=STEPS,
    )
    third = expected_of(_round(*kills))
    assert (third.actions, third.exit_code, third.steps) == (("restart", "restart", "fail"), 1, None)


def test_a_killed_agent_is_followed_by_one_that_goes_on_counting() -> None:
    acts = (
        Act("worker SIGKILL", "step", 10, 1),
        Act("agent SIGKILL", "step", 20),
        Act("worker SIGKILL", "step", 30),
    )
    expected = expected_of(_round(*acts, settings=replace(PLAIN, restarts=1)))
    assert (expected.actions, expected.agents, expected.exit_code) == (("restart", "fail"), 2, 1)


def test_a_hang_that_is_only_told_stands_until_it_is_stopped_by_hand() -> None:
    settings = replace(PLAIN, interval=15, on_hang="notify")
    expected = expected_of(_round(Act("worker SIGSTOP", "step", 30, 0), settings=settings))
    assert (expected.actions, expected.by_hand, expected.result) == (("notify",), True, "stopped by SIGTERM")


@pytest.mark.parametrize(
    ("last", "stored"),
    [(None, False), (Act("free", "later", 1.0), True)],
    ids=["for good", "for a while"],
)
def test_what_a_full_disk_had_no_room_for_is_expected_once_there_is_room(
    last: Act | None, stored: bool
) -> None:
    acts = (Act("fill", "step", 10), Act("worker SIGKILL", "step", 20, 1), *((last,) if last else ()))
    expected = expected_of(_round(*acts))
    assert (expected.told, expected.records, expected.explained) == (True, stored, False)


def test_a_round_in_which_nobody_looked_on_is_not_right_for_that(tmp_path: Path) -> None:
    job = ChaosJob(tmp_path, "chaos-unseen", home=tmp_path, scratch=tmp_path, words=[])
    job.start([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        onlooker = Onlooker(job)
        seen = Seen(job, onlooker, 0, [])
        onlooker.open()
        onlooker.close()
        assert wrong(_round(), Expected(records=False), seen) == ["no worker was seen"]
        unseen = Expected(records=False, launches=None)
        assert wrong(_round(), unseen, seen) == []
        onlooker.close()
        assert wrong(_round(), unseen, seen) == ["nobody looked on to the end"]
    finally:
        job.end()


def test_a_wrong_command_line_is_one_of_the_parsers_errors() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--rounds", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2
    assert "argument --rounds" in done.stderr
