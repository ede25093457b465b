"""Row 7 with counters: a link between ranks lets nothing through, and who is behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from tests.classify_factory import ARank, a_rank, judge, judge_still, stdlib
from tests.rules_factory import said
from tests.slow_factory import connected, looks_of

from rankscope.diag.model import Diagnosis, JobSnapshot, RankSnapshot

Pairs = Mapping[tuple[int, int], tuple[int, int, int]]
"""Of the first rank's end: bytes not acknowledged, timeouts in a row; of the second's: bytes unread."""
ARRIVED = (0, 0, 0)
LOST = (96, 5, 0)
BEFORE = (96, 2, 0)
STAR: Pairs = {(0, 2): LOST, (1, 2): LOST, (3, 2): (96, 6, 0), (0, 1): ARRIVED}


def members(count: int = 4, **changes: object) -> list[ARank]:
    return [a_rank(rank).waiting_in(seq=9).but(step=5, **changes) for rank in range(count)]


def pair(ranks: Sequence[ARank], then: Pairs, now: Pairs) -> tuple[JobSnapshot, JobSnapshot]:
    first, last = looks_of(*([one, one] for one in ranks), seconds=4.0)
    return connected(first, then), connected(last, now)


def cut_off(now: Pairs, *, timeouts_before: int = 2, ranks: Sequence[ARank] | None = None) -> Diagnosis:
    then = {ends: (sent, timeouts_before if lost else 0, left) for ends, (sent, lost, left) in now.items()}
    return judge(*pair(ranks or members(), then, now), silent=12.0)


def on_two_hosts(look: JobSnapshot) -> JobSnapshot:
    """The first two ranks on one host, the rest on another."""
    ranks = (msgspec.structs.replace(one, node="ab"[one.rank > 1]) for one in look.ranks)
    return msgspec.structs.replace(look, ranks=tuple(ranks))


def is_the_link(found: Diagnosis) -> bool:
    return found.summary.startswith("the network lets nothing through")


# ---- who is behind it -------------------------------------------------------------------------------------


def test_the_rank_that_all_dead_links_have_in_common_is_named_and_the_others_wait_for_it() -> None:
    found = cut_off(STAR)
    assert said(found) == ("RankCommHang", "network", "high", (2,), "7")
    assert found.severity == "error"
    assert [one.waits_for for one in found.ranks] == [(2,), (2,), (), (2,)]
    assert found.summary == (
        "the network lets nothing through between ranks 0 and 2, 1 and 2, 2 and 3: rank 2 is cut off;"
        " ranks 0-1,3 wait for it in all_reduce"
    )
    facts = [one.fact for one in found.evidence if one.source == "/proc/net/tcp"]
    assert (
        facts[2] == "ranks 2 and 3: 96 bytes not acknowledged, sent again 6 times in a row without an answer"
    )
    assert found.location is not None
    assert found.would_change == "an answer on any of the connections of rank 2 that have none"


def test_a_single_dead_link_names_both_its_ends_with_low_confidence() -> None:
    found = cut_off({(1, 2): LOST, (0, 3): ARRIVED})
    assert said(found) == ("RankCommHang", "network", "low", (1, 2), "7")


def test_one_dead_link_says_little_even_where_the_host_of_only_one_end_is_known() -> None:
    looks = pair(members(), {(1, 2): BEFORE}, {(1, 2): LOST})
    placed = [
        msgspec.structs.replace(
            look, ranks=tuple(msgspec.structs.replace(one, node="a" * (one.rank == 1)) for one in look.ranks)
        )
        for look in looks
    ]
    assert said(judge(*placed, silent=12.0))[2:4] == ("low", (1,))


def test_dead_links_without_a_common_end_name_all_their_ends_with_low_confidence() -> None:
    found = cut_off({(0, 1): LOST, (2, 3): LOST})
    assert said(found)[2:4] == ("low", (0, 1, 2, 3))


def test_dead_links_between_two_hosts_do_not_tell_which_of_them_is_cut_off() -> None:
    looks = [
        on_two_hosts(look)
        for look in pair(members(5), {(0, 2): BEFORE, (1, 3): BEFORE}, {(0, 2): LOST, (1, 3): LOST})
    ]
    assert said(judge(*looks, silent=12.0))[2:4] == ("low", (0, 1, 2, 3))


def on_one_address(look: JobSnapshot, *ranks: int) -> JobSnapshot:
    """Some ranks have one address, as those of one host have."""

    def moved(address: str) -> str:
        host, _, port = address.rpartition(":")
        return f"10.0.0.99:{port}" if host in {f"10.0.0.{rank + 1}" for rank in ranks} else address

    def one(rank: RankSnapshot) -> RankSnapshot:
        ends = (
            msgspec.structs.replace(end, local=moved(end.local), remote=moved(end.remote))
            for end in rank.connections
        )
        return msgspec.structs.replace(rank, connections=tuple(ends))

    return msgspec.structs.replace(look, ranks=tuple(one(rank) for rank in look.ranks))


MESH: Pairs = dict.fromkeys(((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)), ARRIVED)


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({**MESH, (2, 3): LOST}, (2,)),
        # What is on its way to it may arrive, or be sent again soon.
        ({**MESH, (2, 3): LOST, (0, 2): (96, 0, 0)}, (2, 3)),
        # Of the rank's other connections nothing is seen.
        ({(2, 3): LOST, (0, 1): ARRIVED, (0, 3): ARRIVED, (1, 3): ARRIVED}, (2, 3)),
    ],
)
def test_idle_links_between_the_addresses_of_a_dead_one_are_dead_too(
    now: Pairs, named: tuple[int, ...]
) -> None:
    """Measured: the packets of a ring's one step were lost, and then nobody sent anything."""
    then = {**now, (2, 3): BEFORE}
    looks = [on_one_address(look, 0, 1, 3) for look in pair(members(), then, now)]
    assert said(judge(*looks, silent=12.0)) == ("RankCommHang", "network", "low", named, "7")


def test_idle_links_to_other_addresses_say_nothing() -> None:
    assert said(cut_off({(1, 2): LOST, (0, 2): ARRIVED}))[3] == (1, 2)
    assert said(cut_off({**MESH, (1, 2): LOST}))[3] == (1, 2)


# ---- how sure it is ---------------------------------------------------------------------------------------


def test_a_single_look_needs_more_timeouts_and_is_less_sure() -> None:
    only = pair(members(), STAR, STAR)[1]
    assert said(judge(only)) == ("RankCommHang", "network", "medium", (2,), "7")
    fewer = {ends: (sent, min(lost, 4), left) for ends, (sent, lost, left) in STAR.items()}
    assert not is_the_link(judge(pair(members(), fewer, fewer)[1]))


def test_a_rank_that_could_not_be_looked_at_makes_it_less_sure() -> None:
    then = {ends: (sent, 2 if lost else 0, left) for ends, (sent, lost, left) in STAR.items()}
    looks = [msgspec.structs.replace(one, world_size=5) for one in pair(members(), then, STAR)]
    assert said(judge(*looks, silent=12.0))[2:4] == ("medium", (2,))


# ---- what is no link that swallows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ((96, 2, 0), 2),  # a lost packet or two
        ((96, 5, 0), 0),  # answered between the looks
        ((96, 3, 0), 6),  # answered since
        ((60_000, 0, 9), 0),  # a peer that does not read
    ],
)
def test_a_link_on_which_an_answer_comes_is_not_dead(now: tuple[int, int, int], before: int) -> None:
    assert not is_the_link(cut_off({(1, 2): now}, timeouts_before=before))


def test_three_timeouts_in_a_row_at_the_second_look_are_enough() -> None:
    assert is_the_link(cut_off({(1, 2): (96, 3, 0)}, timeouts_before=1))
    assert is_the_link(cut_off({(1, 2): (96, 3, 0)}, timeouts_before=3))


def test_a_dead_link_of_a_rank_that_does_not_wait_is_not_the_reason() -> None:
    ranks = [
        a_rank(0).waiting_in().but(step=5),
        a_rank(1).stuck_in(stdlib("Queue.get", "queue.py")).but(step=5),
    ]
    found = cut_off({(0, 1): LOST}, ranks=ranks)
    assert said(found)[:1] + said(found)[3:4] == ("RankNonCommHang", (1,))
    assert judge_still(*ranks).culprits == (1,)


def test_counters_of_two_different_waits_show_no_dead_link() -> None:
    """A collective was entered between the looks."""
    before = [one.but(groups=()).at(8, completed=8) for one in members()]
    first, last = looks_of(*zip(before, members(), strict=True), seconds=4.0)
    assert not is_the_link(judge(connected(first, STAR), connected(last, STAR), silent=12.0))


def test_a_stopped_rank_is_named_for_that_and_its_links_are_not() -> None:
    ranks = members()
    ranks[2] = ranks[2].but(state="T")
    found = cut_off(STAR, ranks=ranks)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "frozen", (2,))


def test_a_job_that_made_a_step_between_the_looks_is_healthy() -> None:
    before = [one.but(step=4) for one in members()]
    first, last = looks_of(*zip(before, members(), strict=True), seconds=4.0)
    assert judge(connected(first, STAR), connected(last, STAR), silent=12.0).verdict == "Healthy"
