"""One incident over several agents, in memory: who opens, leads, judges, rules; what is left in the store."""

from __future__ import annotations

import random

import pytest
from tests.nodes_factory import Agent, SimulatedJob

from rankscope.agent.nodes.clock_offsets import offset_of
from rankscope.agent.nodes.events import Answered, CompareSet, Judge, Judged, LookTaken, Proposed, Tick
from rankscope.agent.nodes.limits import CHUNK_BYTES, NODE_BYTES, Limits, look_bytes, most_parts
from rankscope.agent.nodes.messages import Mark, Member, Ruling, decode
from rankscope.agent.nodes.protocol import NodeProtocol
from rankscope.agent.nodes.transitions import TRANSITIONS, is_known

HASTY = Limits(dense_tick=0.5, open_tick=0.5, judge=2.0, collect=2.0, patience=1.0, patience_step=0.0)
LASTING = ("rankscope/nodes/turn", "rankscope/nodes/roster/")


def leftovers(job: SimulatedJob) -> list[str]:
    """Keys of incidents, but for their rulings."""
    return [key for key in job.store.values if not key.startswith(LASTING) and not key.endswith("/ruling")]


def one_incident(job: SimulatedJob, opener: int = 0) -> None:
    job.run(2.0)
    job.agents[opener].suspect()
    job.run_until(lambda: any(agent.protocol.incident for agent in job.agents))
    job.run_until_over()


def judged_by(job: SimulatedJob) -> list[int]:
    return [rank for rank, _ in job.judged]


def asked(job: SimulatedJob) -> Judge:
    return job.judged[0][1]


@pytest.mark.parametrize("opener", [0, 1, 2])
def test_whoever_suspects_all_look_twice_and_group_rank_0_judges(opener: int) -> None:
    job = SimulatedJob(3)
    one_incident(job, opener)
    assert judged_by(job) == [0]
    assert asked(job).opening.node == f"node{opener}"
    assert not asked(job).missing
    kept = {(one.which, one.rank): one.parts for one in job.agents[0].kept}
    assert kept == {(which, rank): (f"{which} of {rank}".encode(),) for which in "ab" for rank in range(3)}
    for agent in job.agents:
        assert [one.verdict for one in agent.learned] == [b"verdict of 0"]
        assert len(agent.followed) == 1
    assert len({repr(agent.followed[0].ruling) for agent in job.agents}) == 1


def test_when_all_is_over_only_the_ruling_and_the_turn_are_left() -> None:
    job = SimulatedJob(3)
    one_incident(job)
    assert leftovers(job) == []
    one_incident(job, 1)
    assert leftovers(job) == []
    assert job.store.values["rankscope/nodes/1/ruling"] == b"over"
    assert job.store.values["rankscope/nodes/2/ruling"] != b"over"


def test_two_suspicions_at_once_become_one_incident() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    for agent in job.agents:
        agent.suspect()
    job.run(1.5)
    assert len({agent.protocol.incident for agent in job.agents}) == 1
    job.run_until_over()
    assert list(job.rulings()) == [1]


def test_it_costs_one_small_call_a_tick_while_nothing_happens() -> None:
    job = SimulatedJob(5)
    job.run(10.0)
    job.store.calls.clear()
    job.run(100.0)
    assert set(job.store.calls) == {"Add"}
    assert job.store.calls["Add"] <= 5 * 101


def test_an_agent_that_is_dead_is_missing_and_the_reason_is_said() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[1].alive = False
    job.agents[2].suspect()
    job.run(3.0)
    job.run_until_over()
    found = asked(job)
    assert {(one.which, one.rank) for one in found.missing} == {("a", 1), ("b", 1)}
    assert found.missing[0].reason.startswith("its agent did not answer within ")
    ((rank, roster),) = found.rosters
    assert rank == 1
    assert decode(roster, Member) == Member(1, 3, "node1", (2, 3))
    assert all(len(agent.followed) == 1 for agent in job.running)
    assert leftovers(job) == []


def test_an_agent_that_fell_silent_between_its_looks_is_missing_from_the_second() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[0].suspect()
    job.run(3.0)
    assert job.agents[1].protocol.state == "looking"
    job.agents[1].alive = False
    job.run_until_over()
    assert [(one.which, one.rank) for one in asked(job).missing] == [("b", 1)]
    assert "answered once" in asked(job).missing[0].reason


def _run_into(job: SimulatedJob, agent: Agent, state: str) -> None:
    """Until an agent is in a state, whose verdict nobody else has heard of."""
    while agent.protocol.state != state:
        job.step(judges=False)
        assert job.now < 500.0


def test_a_leader_that_dies_between_merge_and_verdict_is_followed_by_the_next() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[2].suspect()
    _run_into(job, job.agents[0], "judging")
    job.agents[0].alive = False
    job.run_until_over()
    assert judged_by(job) == [1]
    assert all(agent.learned[0].verdict == b"verdict of 1" for agent in job.agents[1:])
    assert leftovers(job) == []


def test_a_leader_that_comes_back_too_late_takes_the_verdict_of_the_other() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[2].suspect()
    _run_into(job, job.agents[0], "judging")
    job.agents[0].asleep = True
    job.run_until(lambda: job.agents[1].protocol.state == "judged")
    job.agents[0].asleep = False
    job.agents[0].judge()  # what it had begun before
    job.run_until_over()
    assert [one.verdict for one in job.agents[0].learned] == [b"verdict of 1"]
    assert sorted(judged_by(job)) == [0, 1]


def test_of_two_verdicts_at_once_all_take_the_same() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    _run_into(job, job.agents[0], "judging")
    leader = job.agents[0]
    leader.judge()
    job.store.values["rankscope/nodes/1/verdict"] = b"of somebody else"  # a moment before
    job.run_until_over()
    assert [agent.learned[0].verdict for agent in job.agents] == [b"of somebody else"] * 2


def test_an_agent_that_comes_back_after_the_ruling_learns_it_and_follows() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[2].asleep = True
    one_incident(job)
    assert job.agents[2].followed == []
    job.agents[2].asleep = False
    job.run_until_over()
    (late,) = job.agents[2].followed
    assert late.late
    assert late.ruling == job.agents[0].followed[0].ruling
    one_incident(job, 2)  # and takes part in the next
    assert len(job.agents[2].followed) == 2
    assert leftovers(job) == []


def test_an_agent_that_slept_in_the_middle_of_ruling_cannot_rule_on_what_is_long_over() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[0].suspect()
    job.run_until(lambda: all(agent.protocol.state == "judged" for agent in job.agents))
    slow = job.agents[2]
    slow.propose("too late")
    while not (isinstance(slow.call, CompareSet) and slow.call.key.endswith("/ruling")):
        assert slow.execute()
        assert slow.deliver()
    slow.asleep = True  # its call has not reached the store yet
    job.run_until_over()
    one_incident(job)
    slow.asleep = False
    job.run_until_over()
    assert {number: len(rulings) for number, rulings in job.rulings().items()} == {1: 1, 2: 1}
    assert [one.number for one in slow.followed] == [2]


def test_progress_of_any_node_ends_the_incident_with_nothing() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[0].suspect()
    job.run(2.0)
    job.agents[2].progress()
    job.run_until_over()
    assert judged_by(job) == []
    for agent in job.agents:
        assert agent.followed[0].ruling.decision is None
        assert agent.followed[0].ruling.reason == "node2 goes on"


def test_of_two_rulings_at_once_all_follow_the_same() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[0].suspect()
    job.run_until(lambda: all(agent.protocol.state == "judged" for agent in job.agents))
    for agent in job.agents:
        agent.propose(f"says {agent.rank}")
    job.run_until_over()
    assert len({repr(agent.followed[0].ruling) for agent in job.agents}) == 1


def test_an_incident_without_a_verdict_ends_by_itself() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    job.run_until(lambda: bool(job.agents[0].protocol.incident))
    start = job.now
    while any(agent.protocol.incident for agent in job.agents):
        job.step(judges=False)
        assert job.now - start < job.limits.incident + 2 * job.limits.ack
    assert job.agents[1].followed[0].ruling.reason == "no verdict came in time"


def test_a_frozen_store_leaves_each_agent_to_itself_and_its_return_brings_the_ruling() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    job.run(3.0)
    for _ in range(15):  # the link fails each call by its own time-out
        job.now += 1.0
        for agent in job.agents:
            agent.tick()
            agent.lose()
    assert [agent.protocol.state for agent in job.agents] == ["watching"] * 2
    assert "has not answered" in job.agents[0].alone[0].reason
    job.run_until_over()
    assert all(len(agent.followed) == 1 for agent in job.agents)


def test_a_change_of_the_membership_makes_all_void() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    job.run(3.0)
    agent = job.agents[0]
    agent.leave()
    assert agent.protocol.state == "watching"
    assert agent.protocol.handle(Tick(job.now)) == ()


def test_a_large_look_goes_in_parts() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    parts = (b"x" * 10, b"y" * 10, b"z")
    job.see = lambda agent, which: agent.tell(  # type: ignore[method-assign]  # other looks than the usual
        LookTaken(job.now, which, parts if agent.rank == 1 else (b"s",))
    )
    one_incident(job, 1)
    assert {one.parts for one in job.agents[0].kept if one.rank == 1} == {parts}
    assert leftovers(job) == []


def test_the_looks_of_all_nodes_stay_below_a_bound() -> None:
    assert look_bytes(2) == NODE_BYTES
    assert most_parts(2) * CHUNK_BYTES == NODE_BYTES
    assert most_parts(2000) == 1
    assert look_bytes(2000) * 2000 <= 128 << 20


def test_what_cannot_be_read_is_nobodys() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    job.run_until(lambda: "rankscope/nodes/1/a/1" in job.store.values)
    job.store.values["rankscope/nodes/1/a/1"] = b"\xff\n"
    job.run_until_over()
    (one,) = asked(job).missing
    assert (one.which, one.rank, one.reason) == ("a", 1, "what it wrote cannot be read")


def test_clocks_that_differ_are_compared_by_marks() -> None:
    job = SimulatedJob(3, offsets=(0.0, 5.0, -3600.0))
    one_incident(job, 1)
    found = asked(job)
    for rank, marks in found.marks:
        offset = offset_of(found.own_marks, marks)
        assert offset is not None
        assert offset.seconds == pytest.approx(-job.agents[rank].offset, abs=offset.error)
        assert offset.error <= 0.3


def test_marks_that_contradict_give_no_offset() -> None:
    own = [Mark(1, 10.0, 10.1), Mark(3, 11.0, 11.1)]
    assert offset_of(own, [Mark(2, 20.0, 20.1)]) is not None
    assert offset_of(own, [Mark(2, 20.0, 20.1), Mark(2, 500.0, 500.1)]) is None  # its clock was set
    assert offset_of(own, [Mark(4, 20.0, 20.1)]) is None
    assert offset_of([], [Mark(4, 20.0, 20.1)]) is None


def test_a_late_answer_to_nobodys_call_is_ignored() -> None:
    protocol = NodeProtocol(Member(0, 1, "n", (0,)))
    assert protocol.handle(Answered(1.0, 3)) == ()
    assert protocol.state == "watching"


def test_every_row_of_the_table_happens_and_no_other() -> None:
    """Driven at random, with agents that stop, sleep and lose the store."""
    seen: set[tuple[str, str, str]] = set()
    for seed in range(20):
        _drive(random.Random(seed), seen)
    rows = {(row.start, row.end, row.why) for row in TRANSITIONS}
    wide = {(row.end, row.why) for row in TRANSITIONS if row.start == "any"}
    for start, end, reason in seen:
        assert is_known(start, end, reason)  # type: ignore[arg-type]  # states
    narrow = {row for row in rows if row[0] != "any"}
    assert narrow <= seen
    assert wide <= {(end, reason) for _, end, reason in seen}


def _drive(draw: random.Random, seen: set[tuple[str, str, str]]) -> None:
    job = SimulatedJob(3, limits=HASTY)
    for agent in job.agents:
        _record(agent.protocol, seen)
    acts = ("suspect", "propose", "progress", "lose", "sleep", "freeze", "leave")
    for _ in range(120):
        judges = draw.random() < 0.7
        for _ in range(draw.choice((3, 6, 20))):
            job.step(judges=judges)
        agent = draw.choice(job.agents)
        act = draw.choices(acts, (6, 6, 1, 1, 2, 1, 0.3))[0]
        if act == "sleep":
            agent.asleep = not agent.asleep
        elif act == "freeze":
            for _ in range(14):
                job.now += 1.0
                agent.tick()
                agent.lose()
        else:
            getattr(agent, act)()


def _record(protocol: NodeProtocol, seen: set[tuple[str, str, str]]) -> None:
    go = protocol._go

    def recorded(state: str, reason: str) -> None:
        seen.add((protocol.state, state, reason))
        go(state, reason)  # type: ignore[arg-type]  # a state

    protocol._go = recorded  # type: ignore[method-assign]  # seen from outside


def test_what_is_suspected_while_a_ruling_is_still_to_be_heard_by_others_is_opened_after_it() -> None:
    job = SimulatedJob(3)
    job.run(2.0)
    job.agents[0].suspect()
    job.run_until(lambda: all(agent.protocol.state == "judged" for agent in job.agents))
    job.agents[0].propose()
    job.run_until(lambda: job.agents[0].protocol.state == "ruled")
    job.agents[0].suspect()
    job.run_until_over()
    job.run_until(lambda: bool(job.agents[0].protocol.incident))
    job.run_until_over()
    assert list(job.rulings()) == [1, 2]
    assert len(job.agents[2].learned) == 2


def test_what_comes_late_of_an_earlier_incident_is_nothing_to_the_next() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    leader = job.agents[0]
    leader.suspect()
    while not leader.judges:
        job.step(judges=False)
    (before,) = leader.judges
    job.agents[1].progress()
    job.run_until_over()
    leader.judges.clear()
    leader.suspect()
    job.run_until(lambda: leader.protocol.state == "looking")
    leader.tell(Judged(job.now, b"of the first", before.opening))
    leader.tell(LookTaken(job.now, "a", (b"of the first",), before.opening))
    leader.tell(Proposed(job.now, Ruling(before.opening.incident, 0, "node0", "of the first")))
    job.run_until_over()
    assert [one.verdict for one in job.agents[1].learned] == [b"verdict of 0"]
    assert (b"of the first",) not in [one.parts for one in leader.kept]
    assert "of the first" not in {agent.followed[-1].ruling.reason for agent in job.agents}


def test_who_leaves_in_the_middle_takes_its_looks_along() -> None:
    job = SimulatedJob(2)
    job.run(2.0)
    job.agents[0].suspect()
    agent = job.agents[1]
    job.run_until(lambda: agent.protocol.state == "reported" and agent.call is None)
    agent.leave()
    agent.execute()
    assert [key for key in leftovers(job) if key.endswith(("/a/1", "/b/1"))] == []
    assert [key for key in leftovers(job) if key.endswith("/a/0")]
