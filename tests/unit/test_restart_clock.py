"""The clock of a restart, and calls that are left behind when they take too long."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.deciding.restart_clock import RestartClock


def test_a_call_that_comes_back_in_time_gives_its_result() -> None:
    assert within(60, lambda: threading.current_thread().name, name="rankscope-test") == "rankscope-test"


def test_what_a_call_raises_is_raised_here() -> None:
    def fail() -> NoReturn:
        raise KeyError("rank 7")

    with pytest.raises(KeyError, match="rank 7"):
        within(60, fail, name="rankscope-test")


def test_a_call_that_does_not_come_back_is_left_behind() -> None:
    let_go = threading.Event()
    with pytest.raises(TookTooLongError, match=r"rankscope-test took longer than 0\.05 s"):
        within(0.05, let_go.wait, name="rankscope-test")
    (left,) = [one for one in threading.enumerate() if one.name == "rankscope-test"]
    assert left.daemon
    let_go.set()
    left.join(20)
    assert not left.is_alive()


def test_no_time_is_left_once_the_limit_has_passed_and_none_counts_between_restarts() -> None:
    clock = RestartClock(0.0)
    assert (clock.left, clock.taken) == (None, 0.0)
    clock.begin()
    first = clock.taken
    clock.begin()  # the same restart: decided, then begun
    assert clock.taken >= first >= 0.0
    assert clock.left == 0.0
    clock.end()
    assert clock.left is None


def test_without_a_limit_a_restart_may_take_as_long_as_it_takes() -> None:
    clock = RestartClock(None)
    clock.begin()
    assert clock.left is None
