"""Rows S1 to S3: who is slow, by records, stacks and connections; and who is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from tests.classify_factory import ARank, a_rank, judge, torch_frame, user
from tests.slow_factory import (
    KEY,
    Rhythm,
    connected,
    inside,
    judge_slow,
    looks_of,
    outside,
    records_of,
    with_records,
)

from rankscope.diag.classify import Slowdown
from rankscope.diag.classify.lateness import lateness
from rankscope.diag.model import Diagnosis, ExitFacts, Frame, JobSnapshot

LOOKS = 20
WORSE = Slowdown(before=0.2, now=0.6, since_step=42)


def said(found: Diagnosis) -> tuple[str, str, tuple[int, ...], str]:
    return found.verdict, found.kind, found.culprits, found.rule


def alternating(rank: int, *, of_ten_inside: int, shift: int = 0, function: str = "crunch") -> list[ARank]:
    """A rank that is in communication at so many of ten looks, and makes a step a look."""
    return [
        inside(rank, step) if (step * 7 + shift) % 10 < of_ten_inside else outside(rank, function, step=step)
        for step in range(LOOKS)
    ]


def looks(*shares: int, function: str = "crunch") -> tuple[JobSnapshot, ...]:
    ranks = [
        alternating(rank, of_ten_inside=share, shift=rank, function=function)
        for rank, share in enumerate(shares)
    ]
    return looks_of(*ranks)


# ---- S1 ---------------------------------------------------------------------------------------------------


def test_the_rank_that_is_least_in_communication_is_slow_by_stacks_alone() -> None:
    found = judge_slow(*looks(9, 1, 9, 9))
    assert said(found) == ("RankNonCommSlow", "user_code", (1,), "S1")
    assert found.severity == "info"
    assert found.confidence == "medium"
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("crunch", 8)
    assert "about 9.0 times as slow as the others" in found.summary
    assert [one.state for one in found.ranks] == ["waiting", "slow", "waiting", "waiting"]
    assert found.ranks[0].waits_for == (1,)


def test_the_jobs_pace_tells_since_when_only_of_the_first_who_was_slow() -> None:
    first = judge_slow(*looks(9, 1, 9, 9), slowdown=WORSE, named={1})
    assert (first.since_step, "since about step 42" in first.summary) == (42, True)
    second = judge_slow(*looks(9, 1, 9, 9), slowdown=WORSE, named={0})
    assert (second.culprits, second.since_step, "since" in second.summary) == ((1,), None, False)


@pytest.mark.parametrize("shares", [(5, 5, 5, 5), (9, 6, 9, 9), (6, 4, 5, 7), (0, 0, 0, 0), (9, 1, 1, 9)])
def test_ranks_that_differ_by_chance_or_are_several_are_not_slow(shares: Sequence[int]) -> None:
    assert said(judge_slow(*looks(*shares))) == ("Healthy", "none", (), "0")


def test_a_few_looks_prove_nothing() -> None:
    assert judge_slow(*looks(9, 0, 9)[:6]).verdict == "Healthy"


def test_records_and_stacks_together_are_sure_and_tell_the_step() -> None:
    """Collectives and steps rise together: 100 of them at the last look, which is step 19."""
    before = records_of(Rhythm(steps=81, late={2: 0.2}, since=90))
    after = records_of(Rhythm(steps=100, late={2: 0.2}, since=60))
    found = judge_slow(*with_records(looks(9, 9, 2, 9), before, after), slowdown=WORSE)
    assert said(found) == ("RankNonCommSlow", "user_code", (2,), "S1")
    assert found.confidence == "high"
    assert "at least" in found.summary
    assert f"since about step {found.since_step};" in found.summary
    assert any(one.fact.startswith("steps take 0.6 s since step 42, 0.2 s before") for one in found.evidence)


def test_records_that_show_all_arriving_together_overrule_stacks() -> None:
    fair = records_of(Rhythm())
    assert judge_slow(*with_records(looks(9, 2, 9, 9), fair, fair)).verdict == "Healthy"


def test_a_rank_that_records_call_late_and_stacks_show_waiting_is_not_named() -> None:
    late = records_of(Rhythm(late={2: 0.2}))
    assert judge_slow(*with_records(looks(5, 5, 9, 5), late, late)).verdict == "Healthy"


def test_what_the_slow_rank_does_more_than_the_others_is_its_place() -> None:
    """All ranks load a batch at most of their looks; the slow one computes besides."""

    def rank(number: int, *, is_slow: bool) -> list[ARank]:
        rest = outside(number, "refine", 20) if is_slow else inside(number)
        return [(outside(number, "load_batch", 4) if at % 9 < 5 else rest).but(step=at) for at in range(90)]

    found = judge_slow(*looks_of(rank(0, is_slow=False), rank(1, is_slow=True), rank(2, is_slow=False)))
    assert found.location is not None
    assert (found.culprits, found.location.function) == ((1,), "refine")


def test_a_rank_that_has_no_core_is_slow_for_nothing_in_the_program() -> None:
    found = judge_slow(*starved(delay=0.6, cpu=0.2))
    assert said(found) == ("RankNonCommSlow", "none", (1,), "S1")
    assert "without a core for 60 % of the time" in found.summary


def test_a_rank_that_computes_more_than_the_others_is_not_excused_by_a_busy_host() -> None:
    assert judge_slow(*starved(delay=0.6, cpu=0.4)).kind == "user_code"


def starved(*, delay: float, cpu: float) -> tuple[JobSnapshot, ...]:
    seen = looks(9, 1, 9)
    waited = {1: delay}
    used = {0: 0.2, 1: cpu, 2: 0.2}

    def put(look: JobSnapshot, seconds: float) -> JobSnapshot:
        ranks = [
            msgspec.structs.replace(
                one,
                facts=msgspec.structs.replace(
                    one.facts,
                    main_run_delay_seconds=waited.get(one.rank, 0.05) * seconds,
                    main_cpu_seconds=used[one.rank] * seconds,
                ),
            )
            for one in look.ranks
            if one.facts is not None
        ]
        return msgspec.structs.replace(look, ranks=tuple(ranks))

    return (put(seen[0], 0.0), *seen[1:-1], put(seen[-1], 0.5 * (LOOKS - 1)))


def test_a_node_all_of_whose_ranks_are_late_is_named_as_one() -> None:
    rhythm = Rhythm(ranks=6, hosts=3, buckets=4, late={2: 0.2, 3: 0.2})
    late = rhythm.lateness()
    assert late is not None
    assert (late.ranks, late.node) == ((2, 3), "host-1")
    records = records_of(rhythm)
    ranks = [alternating(rank, of_ten_inside=1 if rank in (2, 3) else 9, shift=rank) for rank in range(6)]
    found = judge_slow(*with_records(looks_of(*ranks, nodes=rhythm.nodes), records, records))
    assert (found.culprits, found.nodes, found.confidence) == ((2, 3), ("host-1",), "low")
    assert "every rank of node host-1 (ranks 2-3)" in found.summary


def test_two_late_ranks_of_a_larger_node_blame_nobody() -> None:
    assert Rhythm(ranks=6, hosts=2, buckets=4, late={0: 0.2, 1: 0.2}).lateness() is None


def test_one_collective_a_step_does_not_bound_two_clocks() -> None:
    """Arrivals alone cannot tell a late rank from a clock that is ahead: nobody is named."""
    assert Rhythm(ranks=2, hosts=2, late={1: 0.3}).lateness() is None


@pytest.mark.parametrize(
    ("within", "culprits"), [(0.001, (1,)), (0.05, (1,)), (0.5, ()), (None, ())], ids=str
)
def test_clocks_that_were_compared_tell_who_is_late(within: float | None, culprits: tuple[int, ...]) -> None:
    rhythm = Rhythm(ranks=2, hosts=2, late={1: 0.3}, one_clock=True)
    late = lateness(KEY, rhythm.calls(), rhythm.nodes, clocks_within=within)
    assert (late.ranks if late is not None else ()) == culprits


def test_clocks_that_were_compared_blame_nobody_of_a_fair_job() -> None:
    rhythm = Rhythm(ranks=6, hosts=3, buckets=4, one_clock=True)
    assert lateness(KEY, rhythm.calls(), rhythm.nodes, clocks_within=0.002) is None


def test_who_is_late_because_it_waits_for_another_is_a_victim() -> None:
    """Rank 1 is late in its pair with 0; rank 0 therefore in its pair with 2."""
    pair = Rhythm(ranks=2, late={1: 0.1}).calls()
    between = Rhythm(ranks=2, late={0: 0.3}).calls(2)
    looks_at = looks_of(*(alternating(rank, of_ten_inside=1 if rank == 1 else 8) for rank in range(3)))
    records = records_of(Rhythm(ranks=3, steps=1))
    groups = {"a": (pair, (0, 1)), "b": (between, (0, 2))}
    found_entries: dict[int, list[object]] = {0: [], 1: [], 2: []}
    for name, (calls, members) in groups.items():
        for place, rank in enumerate(members):
            found_entries[rank] += [msgspec.structs.replace(one, group=name) for one in calls[place].values()]
    whole = [
        msgspec.structs.replace(record, groups=(), entries=tuple(found_entries[rank]))
        for rank, record in enumerate(records)
    ]
    found = judge_slow(*with_records(looks_at, whole, whole))
    assert (found.verdict, found.culprits) == ("RankNonCommSlow", (1,))


@pytest.mark.parametrize(
    ("late_in", "is_slow"),
    [
        (lambda step: step % 10 < 9, True),
        (lambda step: step % 2 == 0, False),  # in half of the steps
        (lambda step: step > 92, False),  # since too short a time
        (lambda step: step == 50, False),
    ],
)
def test_late_is_who_is_last_in_most_steps(late_in: Callable[[int], bool], is_slow: bool) -> None:
    late = Rhythm(once={step: 0.3 for step in range(100) if late_in(step)}).lateness()
    assert (late is not None) == is_slow


def test_who_is_last_in_most_steps_and_costs_less_than_another_does_in_the_rest_is_not_late() -> None:
    calls = {rank: dict(of_rank) for rank, of_rank in Rhythm().calls().items()}
    behind = 0
    for number in range(1, 101):
        behind += 400_000_000
        for rank, of_rank in calls.items():
            extra = {0: 100_000_000 * (number % 10 < 8), 1: 300_000_000 * (number % 10 >= 8)}.get(rank, 0)
            moved = of_rank[number].created_ns + behind + extra
            of_rank[number] = msgspec.structs.replace(of_rank[number], created_ns=moved)
    assert lateness(KEY, calls, Rhythm().nodes) is None


# ---- S2 ---------------------------------------------------------------------------------------------------

QUIET = (0, 0, 0)
ON_THE_WAY = (60_000, 0, 0)


def linked(pairs: dict[tuple[int, int], float], *, unread: int = 0) -> tuple[JobSnapshot, ...]:
    """All ranks mostly in communication; on each link something is on its way at that share of the looks."""
    return tuple(
        connected(
            look,
            {pair: (60_000, 0, unread) if number < share * LOOKS else QUIET for pair, share in pairs.items()},
        )
        for number, look in enumerate(looks(9, 9, 9))
    )


def test_the_rank_that_the_slow_links_share_is_named() -> None:
    found = judge_slow(*linked({(0, 1): 0.1, (1, 2): 0.9, (2, 0): 0.8}))
    assert said(found) == ("RankCommSlow", "network", (2,), "S2")
    assert found.confidence == "low"
    assert found.ranks[2].rank_class == "RankCommSlow"
    assert found.location is not None
    assert found.location.function == "train_step"
    together = records_of(Rhythm(ranks=3))
    seen = with_records(linked({(0, 1): 0.1, (1, 2): 0.9, (2, 0): 0.8}), together, together)
    with_pace = judge_slow(*seen, slowdown=WORSE)
    assert (with_pace.culprits, with_pace.confidence) == ((2,), "medium")


@pytest.mark.parametrize(
    "pairs",
    [
        {(0, 1): 0.9, (1, 2): 0.9, (2, 0): 0.9},  # a job that is bound by a sound network
        {(0, 1): 0.1, (1, 2): 0.2, (2, 0): 0.1},
        {(0, 1): 0.45, (1, 2): 0.6, (2, 0): 0.4},
    ],
)
def test_links_that_are_all_alike_are_not_slow(pairs: dict[tuple[int, int], float]) -> None:
    assert judge_slow(*linked(pairs)).verdict == "Healthy"


def test_bytes_that_have_arrived_and_are_not_read_are_no_matter_of_the_link() -> None:
    assert judge_slow(*linked({(0, 1): 0.1, (1, 2): 0.9, (2, 0): 0.8}, unread=9)).verdict == "Healthy"


def test_communication_that_takes_what_a_step_takes_longer_is_slow_without_a_culprit() -> None:
    together = records_of(Rhythm(ranks=3))
    found = judge_slow(*with_records(looks(9, 9, 9), together, together), slowdown=WORSE)
    assert said(found) == ("RankCommSlow", "network", (), "S2")
    assert found.confidence == "low"
    in_turn = records_of(Rhythm(ranks=3, own=lambda chance: chance.expovariate(5)))
    waiting = judge_slow(*with_records(looks(9, 9, 9), in_turn, in_turn), slowdown=WORSE)
    assert waiting.verdict == "Healthy"


@pytest.mark.parametrize(
    ("shares", "slowdown"),
    [
        ((9, 9, 9), None),  # communication-bound, and always was for all we know
        ((9, 9, 9), Slowdown(0.5, 0.6, 42)),  # by too little
        ((5, 5, 5), WORSE),  # more outside than a whole step took before
    ],
)
def test_a_job_that_communicates_much_is_not_slow_for_that(
    shares: tuple[int, ...], slowdown: Slowdown | None
) -> None:
    together = records_of(Rhythm(ranks=3))
    seen = with_records(looks(*shares), together, together)
    assert judge_slow(*seen, slowdown=slowdown).verdict == "Healthy"


def test_without_the_ranks_of_other_nodes_nothing_is_said_of_the_network() -> None:
    seen = [msgspec.structs.replace(look, world_size=6) for look in looks(9, 9, 9)]
    assert judge_slow(*seen, slowdown=WORSE).verdict == "Healthy"


# ---- S3 ---------------------------------------------------------------------------------------------------


def loading(of_ten: int) -> tuple[JobSnapshot, ...]:
    fetch = torch_frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py")

    def rank(number: int) -> list[ARank]:
        reads = a_rank(number).stuck_in(user("Records.__getitem__", 7), fetch, user("train", 30))
        return [
            (reads if (at * 7 + number) % 10 < of_ten else inside(number)).but(step=at) for at in range(LOOKS)
        ]

    return looks_of(*map(rank, range(3)))


def test_all_ranks_in_one_kind_of_place_have_a_common_cause_and_no_culprit() -> None:
    found = judge_slow(*loading(7), slowdown=Slowdown(0.3, 0.5, 42))
    assert said(found) == ("RankNonCommSlow", "data_loading", (), "S3")
    assert found.confidence == "medium"
    assert "no minority" in found.summary
    assert found.location is not None
    assert found.location.function == "Records.__getitem__"


@pytest.mark.parametrize(("of_ten", "verdict"), [(8, "RankNonCommSlow"), (5, "Healthy")])
def test_without_a_pace_of_its_own_only_most_of_the_time_counts(of_ten: int, verdict: str) -> None:
    found = judge_slow(*loading(of_ten))
    assert (found.verdict, found.confidence) == (verdict, "low" if of_ten == 8 else "high")


def test_where_it_may_be_communication_or_loading_neither_is_said() -> None:
    assert judge_slow(*loading(5), slowdown=Slowdown(0.3, 0.5, 42)).verdict == "Healthy"


def test_a_model_that_takes_longer_from_some_step_on_is_healthy() -> None:
    assert judge_slow(*looks(2, 2, 2), slowdown=WORSE).verdict == "Healthy"


# ---- no slow job ------------------------------------------------------------------------------------------


def test_a_job_that_has_come_to_a_stop_is_no_slow_one() -> None:
    stuck = [
        [inside(0, 9), *[inside(0, 9)] * 9, *[inside(0, 9)] * 10],
        [outside(1, step=9)] * LOOKS,
        [inside(2, 9)] * LOOKS,
    ]
    found = judge_slow(*looks_of(*stuck))
    assert found.verdict in ("RankNonCommHang", "Unknown")
    moved_before = looks(9, 1, 9)[:6] + looks_of(*stuck)[6:]
    assert judge_slow(*moved_before).verdict != "RankNonCommSlow"


@pytest.mark.parametrize(
    ("change", "verdict"), [({"state": "T"}, "Healthy"), ({"exit": ExitFacts(code=1)}, "Exited")]
)
def test_ranks_that_are_gone_or_frozen_are_no_slow_ones(change: dict[str, object], verdict: str) -> None:
    ranks = [alternating(rank, of_ten_inside=9) for rank in range(3)]
    ranks[1] = [one.but(**change) for one in alternating(1, of_ten_inside=1)]
    assert judge_slow(*looks_of(*ranks)).verdict == verdict


def test_the_slow_rules_judge_nothing_else_than_looks_that_were_taken_for_them() -> None:
    seen = looks(9, 1, 9)
    assert judge(seen[0], seen[-1], samples=seen[1:-1]).verdict == "Healthy"


def test_a_backward_that_does_not_run_is_a_wait() -> None:
    """DDP: the waiting ranks show nothing but a backward."""
    engine = torch_frame("_engine_run_backward", "torch/autograd/graph.py", 825)

    def rank(number: int, *, is_slow: bool) -> list[ARank]:
        backward = a_rank(number).stuck_in(engine, user("train", 30)).but(active=False)
        return [
            (outside(number, "augment", 5) if is_slow and at % 8 else backward).but(step=at)
            for at in range(LOOKS)
        ]

    found = judge_slow(*looks_of(*(rank(number, is_slow=number == 1) for number in range(3))))
    assert (found.verdict, found.culprits) == ("RankNonCommSlow", (1,))


def test_a_slow_rank_that_runs_python_at_its_own_line_is_in_no_loop() -> None:
    """Where it owns the GIL at some looks and not at others, it is one place all the same."""

    def rank(number: int, *, is_slow: bool) -> list[ARank]:
        rest = outside(number, "refine", 20) if is_slow else inside(number)
        return [
            (outside(number, "main", 4) if at % 9 < 4 else rest.but(gil=at % 2 == 0, active=at % 2 == 0)).but(
                step=at
            )
            for at in range(90)
        ]

    found = judge_slow(*looks_of(rank(0, is_slow=False), rank(1, is_slow=True), rank(2, is_slow=False)))
    assert found.location is not None
    assert (found.culprits, found.kind, found.location.function) == ((1,), "user_code", "refine")


@pytest.mark.parametrize(
    ("elsewhere", "function"),
    [
        (torch_frame("save", "torch/serialization.py"), "refine"),  # another kind, the same function
        (None, "main"),  # another file: another function of that name
        (user("refine", 21), "refine"),  # another line
    ],
)
def test_what_a_slow_rank_does_is_counted_by_function_whatever_its_kind(
    elsewhere: Frame | None, function: str
) -> None:
    """``refine`` at 5 of 9 looks, in two kinds or two files, and ``main`` at 4."""

    def look(at: int) -> ARank:
        if at % 9 < 4:
            return outside(1, "main", 4)
        if at % 9 < 7:
            return outside(1, "refine", 20)
        if elsewhere is None:
            return a_rank(1).stuck_in(user("refine", 20, "/workspace/mesh.py"))
        return a_rank(1).stuck_in(elsewhere, user("refine", 20))

    slow = [look(at).but(step=at) for at in range(90)]
    found = judge_slow(*looks_of(*([inside(rank, at) for at in range(90)] for rank in (0, 2)), slow))
    assert found.location is not None
    assert (found.culprits, found.location.function) == ((1,), function)
