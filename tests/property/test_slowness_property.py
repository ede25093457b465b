"""Lateness over simulated jobs: fair ones are never blamed, stragglers are named whatever the clocks say."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slow_factory import KEY, SECOND, Draws, Rhythm, steady

from rankscope.diag.classify.lateness import lateness

SHAPES: dict[str, Draws] = {
    "steady": steady,
    "normal": lambda chance: max(0.001, chance.gauss(0.1, 0.03)),
    "exponential": lambda chance: chance.expovariate(10),
    "log-normal": lambda chance: 0.1 * chance.lognormvariate(0, 0.8),
    "heavy-tailed": lambda chance: min(10.0, 0.06 * chance.paretovariate(1.1)),
    "two sorts of batches": lambda chance: 0.3 if chance.random() < 0.2 else 0.1,
}
ALSO: list[dict[int, float]] = [
    {},
    {37: 10.0},  # an evaluation
    dict.fromkeys(range(0, 200, 10), 0.05),  # a line of log every ten steps
    dict.fromkeys(range(0, 200, 50), 5.0),  # a checkpoint every fifty
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_no_rank_of_a_fair_job_is_late(shape: str, hosts: int) -> None:
    """The seeds are fixed: counted over 400 each, one or none was named in every cell."""
    chance = random.Random(f"{shape} {hosts}")
    for seed in range(30):
        rhythm = Rhythm(
            ranks=chance.choice([ranks for ranks in (2, 3, 4, 6, 8) if ranks >= hosts]),
            hosts=hosts,
            steps=chance.choice([40, 100, 200]),
            own=SHAPES[shape],
            buckets=chance.choice([1, 4]),
            in_flight=chance.random() < 0.5,
            spread=chance.random() < 0.5,
            once=chance.choice(ALSO),
        )
        assert rhythm.lateness(seed) is None, (seed, rhythm)


@settings(max_examples=60, deadline=None)
@given(
    ranks=st.integers(2, 8),
    culprit=st.integers(0, 7),
    extra=st.floats(0.04, 0.5),
    since=st.integers(0, 60),
    buckets=st.sampled_from([1, 4]),
    seed=st.integers(0, 1000),
)
def test_a_straggler_of_one_host_is_named_with_its_beginning(  # noqa: PLR0917 - what is drawn
    ranks: int, culprit: int, extra: float, since: int, buckets: int, seed: int
) -> None:
    culprit %= ranks
    late = Rhythm(ranks=ranks, steps=160, buckets=buckets, late={culprit: extra}, since=since).lateness(seed)
    assert late is not None
    assert late.ranks == (culprit,)
    if since > 10:
        assert abs(late.since_seq / buckets - since) <= 3
    true_factor = (0.1 + extra) / 0.1
    assert 1 < late.factor <= true_factor * 1.1


@settings(max_examples=30, deadline=None)
@given(
    hosts=st.integers(2, 3),
    culprit=st.integers(0, 5),
    extra=st.floats(0.06, 0.5),
    shifts=st.lists(st.integers(-(10**12), 10**12), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
)
def test_clocks_of_hosts_make_no_difference(
    hosts: int, culprit: int, extra: float, shifts: list[int], seed: int
) -> None:
    """A job with several collectives in a row at the end of a step, which bound the clocks."""
    rhythm = Rhythm(ranks=6, hosts=hosts, buckets=4, late={culprit: extra})
    calls = rhythm.calls(seed)
    shifted = {
        rank: {
            seq: msgspec.structs.replace(
                one, created_ns=one.created_ns + shifts[rank * hosts // 6] * SECOND // 10**9
            )
            for seq, one in of_rank.items()
        }
        for rank, of_rank in calls.items()
    }
    late, again = lateness(KEY, calls, rhythm.nodes), lateness(KEY, shifted, rhythm.nodes)
    assert late is not None
    assert again is not None
    assert late.ranks == again.ranks == (culprit,)
    assert late == again


@settings(max_examples=30, deadline=None)
@given(late=st.dictionaries(st.integers(0, 5), st.floats(0.05, 0.5), min_size=1, max_size=5))
def test_ranks_are_named_by_what_they_do_not_by_their_order(late: dict[int, float]) -> None:
    """The same job with its ranks numbered the other way round."""
    rhythm = Rhythm(ranks=6, late=late)
    calls = rhythm.calls()
    turned = {5 - rank: of_rank for rank, of_rank in calls.items()}
    found, again = lateness(KEY, calls, rhythm.nodes), lateness(KEY, turned, rhythm.nodes)
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert again.ranks == (5 - found.rank,)
