"""Where independent workers are: the pauses before their next start, and who is due."""

from __future__ import annotations

import pytest

from rankscope.agent.async_mode.lives import FIRST_PAUSE, LONGEST_PAUSE, QUICK, Life, all_done, due, pause


def test_a_worker_that_ran_for_a_while_is_started_again_at_once() -> None:
    life = Life(since=100.0).failed(100.0 + QUICK)
    assert (life.state, life.due, life.restarts) == ("waiting", 100.0 + QUICK, 1)


def test_a_worker_that_dies_at_once_waits_longer_each_time() -> None:
    life, pauses = Life(since=0.0), []
    now = 0.0
    for _ in range(10):
        life = life.failed(now)
        pauses.append(life.due - now)
        now = life.due
        life = life.started(now)
    assert pauses[:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert life.restarts == len(pauses)


def test_a_worker_that_ran_for_a_while_again_is_forgiven() -> None:
    quick = Life(since=0.0).failed(1.0).started(2.0).failed(3.0).started(5.0)
    long = quick.failed(5.0 + QUICK)
    assert long.due == long.ended
    assert long.started(20.0).failed(21.0).due == 21.0 + FIRST_PAUSE


@pytest.mark.parametrize("quick", [0, 1, 2, 30, 10_000])
def test_a_pause_is_never_longer_than_the_longest(quick: int) -> None:
    assert 0.0 <= pause(quick) <= LONGEST_PAUSE


def test_those_are_due_whose_time_has_come_in_the_order_of_their_times() -> None:
    lives = {
        0: Life(since=0.0),
        1: Life(since=0.0, state="waiting", due=7.0),
        2: Life(since=0.0, state="waiting", due=5.0),
        3: Life(since=0.0, state="waiting", due=9.0),
        4: Life(since=0.0, state="done", due=0.0),
    }
    assert due(lives, 8.0) == [2, 1]
    assert due(lives, 4.0) == []


def test_all_are_done_only_when_nobody_runs_or_waits() -> None:
    done = Life(since=0.0).done(1.0)
    assert all_done([done, done])
    for other in (Life(since=0.0), Life(since=0.0).failed(1.0), Life(since=0.0).lost(1.0)):
        assert not all_done([done, other])
