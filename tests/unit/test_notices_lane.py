"""The lane of one target: order, pauses, when a notice is given up. No clock, no process."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices_factory import an_event

from rankscope.agent.notices.lane import GivenUp, Lane, Limits, Outcome

LIMITS = Limits(waiting=3, tries=4, notice_seconds=100, first_pause=1, longest_pause=8, longest_wait=60)
DELIVERED = Outcome()
DOWN = Outcome("down", again=True)


def a_lane(events: int, limits: Limits = LIMITS) -> Lane:
    lane = Lane(limits)
    for number in range(events):
        lane.offer(an_event(number))
    return lane


def try_now(lane: Lane, outcome: Outcome, *, chance: float = 1.0) -> tuple[str, GivenUp | None, float]:
    """Begin the next try when it is due; its notice, what was given up, and when."""
    now = lane.due()
    assert now is not None
    event = lane.begin(now)
    return event.id, lane.end(outcome, now, chance=chance), now


def test_notices_go_out_one_at_a_time_and_in_order() -> None:
    lane = a_lane(2)
    assert lane.begin(0.0).id == "id-0"
    assert lane.due() is None
    assert lane.end(DELIVERED, 1.0, chance=0.5) is None
    assert try_now(lane, DELIVERED)[0] == "id-1"
    assert lane.is_empty
    assert lane.due() is None


def test_a_later_notice_waits_for_one_that_is_tried_again() -> None:
    lane = a_lane(2)
    assert [try_now(lane, outcome)[0] for outcome in (DOWN, DOWN, DELIVERED, DELIVERED)] == [
        "id-0",
        "id-0",
        "id-0",
        "id-1",
    ]


def test_pauses_double_up_to_the_longest_one() -> None:
    lane = a_lane(1, Limits(tries=9, first_pause=1, longest_pause=8, notice_seconds=1000))
    begun = [try_now(lane, DOWN)[2] for _ in range(7)]
    assert [after - before for before, after in pairwise(begun)] == [1, 2, 4, 8, 8, 8]


@given(st.floats(0, 1))
def test_chance_shortens_a_pause_by_half_at_most(chance: float) -> None:
    lane = a_lane(1)
    try_now(lane, DOWN, chance=chance)
    due = lane.due()
    assert due is not None
    assert 0.5 <= due <= 1.0


def test_a_notice_is_given_up_once_after_its_tries_and_the_next_one_begins_afresh() -> None:
    lane = a_lane(2)
    results = [try_now(lane, DOWN)[1] for _ in range(LIMITS.tries)]
    assert results[:-1] == [None] * 3
    assert results[-1] == GivenUp(an_event(0), "down", 4, 7.0)
    assert [try_now(lane, DOWN)[1] is None for _ in range(3)] == [True] * 3


def test_what_cannot_become_better_is_given_up_at_once() -> None:
    lane = a_lane(1)
    assert try_now(lane, Outcome("HTTP 404"))[1] == GivenUp(an_event(0), "HTTP 404", 1, 0.0)
    assert lane.is_empty


def test_a_notice_is_given_up_when_the_next_try_would_come_too_late() -> None:
    lane = a_lane(1, Limits(tries=100, first_pause=1, longest_pause=30, notice_seconds=20))
    given_up = None
    for _ in range(100):
        given_up = try_now(lane, DOWN)[1]
        if given_up:
            break
    assert given_up is not None
    assert given_up.seconds <= 20


def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    lane = a_lane(1)
    try_now(lane, Outcome("HTTP 429", again=True, wait=42.0))
    assert lane.due() == 42.0
    lane.hurry(1.0)
    assert lane.due() == 42.0


def test_a_wait_past_the_bound_gives_up_the_notice_and_spares_the_server_for_the_bound() -> None:
    lane = a_lane(2)
    _, given_up, _ = try_now(lane, Outcome("HTTP 429", again=True, wait=3600.0))
    assert given_up is not None
    assert lane.due() == LIMITS.longest_wait


def test_a_full_lane_drops_the_oldest_notice_and_counts() -> None:
    lane = a_lane(5)
    assert lane.dropped == 2
    assert try_now(lane, DELIVERED)[0] == "id-2"


def test_a_full_lane_keeps_the_notice_that_is_being_tried_and_its_pause() -> None:
    lane = a_lane(1)
    try_now(lane, DOWN)
    for number in range(1, 6):
        lane.offer(an_event(number))
    assert lane.due() == 1.0
    assert [try_now(lane, DELIVERED)[0] for _ in range(3)] == ["id-0", "id-4", "id-5"]
    assert lane.dropped == 3


def test_at_the_end_the_next_try_does_not_wait() -> None:
    lane = a_lane(1)
    try_now(lane, DOWN)
    lane.hurry(0.25)
    assert lane.due() == 0.25


def test_what_is_left_is_given_up_with_the_reason_of_its_last_try() -> None:
    lane = a_lane(2)
    try_now(lane, DOWN)
    left = lane.abandon("the job ended", 5.0)
    assert [(one.event.id, one.reason, one.tries) for one in left] == [
        ("id-0", "the job ended (before: down)", 1),
        ("id-1", "the job ended", 0),
    ]
    assert lane.is_empty


OUTCOMES = st.sampled_from([DELIVERED, DOWN, Outcome("no"), Outcome("busy", again=True, wait=5.0)])


@given(st.lists(st.one_of(st.just("offer"), OUTCOMES), max_size=60), st.floats(0, 1))
def test_every_notice_is_delivered_or_given_up_or_dropped_once(
    script: list[str | Outcome], chance: float
) -> None:
    lane, offered, ends = Lane(LIMITS), 0, 0
    order: list[int] = []
    for word in script:
        if isinstance(word, str):
            lane.offer(an_event(offered))
            offered += 1
        elif (now := lane.due()) is not None:
            event = lane.begin(now)
            given_up = lane.end(word, now, chance=chance)
            if given_up is not None or not word.reason:
                ends += 1
                order.append(int(event.id[3:]))
    left = lane.abandon("end", 1e6)
    assert ends + len(left) + lane.dropped == offered
    assert order == sorted(order)


@pytest.mark.parametrize("waiting", [1, 2])
def test_a_lane_for_one_notice_still_holds_one(waiting: int) -> None:
    lane = a_lane(4, Limits(waiting=waiting))
    assert lane.dropped == 4 - waiting
