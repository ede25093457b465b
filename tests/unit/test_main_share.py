"""How much of a core a main thread wanted: what it waited for one counts, and not what cannot be."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from tests.classify_factory import a_job, a_rank, judge, user

from rankscope.diag.model import RankSnapshot
from rankscope.watchdog.observations import RankObservation
from rankscope.watchdog.situation import main_share, sink_class

WINDOW = 4.0


def later(rank: RankObservation, *, on_cpu: float, run_delay: float, switches: int = 2) -> RankObservation:
    return replace(
        rank,
        cpu_seconds=rank.cpu_seconds + on_cpu + run_delay,
        run_delay_seconds=rank.run_delay_seconds + run_delay,
        switches=rank.switches + switches,
    )


def test_a_thread_that_waits_for_a_core_wants_to_run() -> None:
    assert main_share(1.0, 2.0, WINDOW, held=False) == 0.75
    rank = RankObservation(1)
    assert sink_class(rank, later(rank, on_cpu=0.1, run_delay=3.0), seconds=WINDOW) == "busy"


def test_it_cannot_have_waited_longer_than_there_was_time() -> None:
    """Measured: 9.9 s of run delay in 3.9 s, of a thread that slept through them."""
    assert main_share(0.0, 9.9, WINDOW, held=False) == 0.0
    assert main_share(1.0, 9.9, WINDOW, held=False) == 0.25
    rank = RankObservation(1)
    assert sink_class(rank, later(rank, on_cpu=0.0, run_delay=9.9), seconds=WINDOW) == "quiet"


def test_a_thread_that_wakes_for_the_gil_only_does_not_want_to_run() -> None:
    rank = RankObservation(1, beat_ns=5)
    polls = later(rank, on_cpu=0.008, run_delay=0.5, switches=780)
    assert sink_class(rank, polls, seconds=WINDOW) == "quiet"
    assert sink_class(rank, replace(polls, beat_ns=6), seconds=WINDOW) == "busy"
    assert sink_class(rank, later(rank, on_cpu=2.0, run_delay=0.5, switches=780), seconds=WINDOW) == "busy"


def test_where_other_threads_use_a_little_cpu_the_one_that_holds_the_gil_may_be_at_work() -> None:
    rank = RankObservation(1, beat_ns=5)
    polls = later(rank, on_cpu=0.008, run_delay=0.5, switches=780)
    assert sink_class(rank, replace(polls, other_cpu_seconds=0.1), seconds=WINDOW) == "quiet"
    assert sink_class(rank, replace(polls, other_cpu_seconds=0.3), seconds=WINDOW) == "ticking"
    victims = [a_rank(at).waiting_in().but(step=5) for at in (0, 1)]
    kept = a_rank(2).stuck_in(user("load", 4)).but(step=5, beat=9.0, switches=195.0)
    for others, confidence in ((0.02, "high"), (0.07, "medium")):
        looks = [a_job(*victims, kept.but(other_cpu=others), seconds=at) for at in (0.0, WINDOW)]
        assert judge(looks[0], looks[1]).confidence == confidence


def with_delay(rank: RankSnapshot, seconds: float) -> RankSnapshot:
    assert rank.facts is not None
    return msgspec.structs.replace(
        rank, facts=msgspec.structs.replace(rank.facts, main_run_delay_seconds=seconds)
    )


def test_a_counter_that_jumped_makes_no_busy_culprit() -> None:
    ranks = [a_rank(0).waiting_in(), a_rank(1).waiting_in(), a_rank(2).stuck_in(user("load", 4))]
    ranks = [rank.but(step=5) for rank in ranks]
    before, after = a_job(*ranks), a_job(*ranks, seconds=WINDOW)
    for delay, verdict in ((9.9, "RankNonCommHang"), (3.9, "Unknown")):
        *others, last = after.ranks
        now = msgspec.structs.replace(after, ranks=(*others, with_delay(last, delay)))
        assert judge(before, now).verdict == verdict
