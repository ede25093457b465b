"""Many agents in any order of events: at most one ruling an incident, no deadlock, who lives learns it.

The order is drawn from a seed: drawn step by step by hypothesis, 200 steps cost a hundred times the run.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nodes_factory import Agent, SimulatedJob

from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.transitions import State

ACTS = (
    *("tick", "execute", "deliver", "see", "judge", "propose") * 3,
    *("suspect", "progress", "lose", "die", "sleep", "wake", "freeze", "thaw", "wait"),
)
_seeds = st.integers(0, 2**32)
_limits = st.sampled_from(
    (Limits(dense_tick=0.25), Limits(incident=30.0, collect=2.0, judge=2.0, look=5.0, alone=4.0))
)


def _act(job: SimulatedJob, act: str, agent: Agent, seconds: float) -> None:
    if act == "wait":
        job.now += seconds
    elif act in ("freeze", "thaw"):
        job.is_frozen = act == "freeze"
    elif act == "wake":
        agent.asleep = False
    elif not agent.runs:
        return
    elif act == "die":
        agent.alive = sum(one.alive for one in job.agents) == 1  # one lives
    elif act == "sleep":
        agent.asleep = True
    else:
        getattr(agent, act)()


def _calm(job: SimulatedJob) -> None:
    """Nothing more happens to anybody: who sleeps wakes up, the store answers again."""
    job.is_frozen = False
    for agent in job.agents:
        agent.asleep = False
    job.run_until_over()


def _check(job: SimulatedJob) -> None:
    rulings = job.rulings()
    assert all(len(of_one) == 1 for of_one in rulings.values())
    told: dict[int, set[str]] = {}
    for agent in job.agents:
        for one in agent.followed:
            told.setdefault(one.number, set()).add(repr(one.ruling))
        numbers = [one.number for one in agent.followed]
        assert numbers == sorted(set(numbers)), "each is followed once, in order"
    assert all(len(of_one) == 1 for of_one in told.values())
    assert set(told) <= set(rulings)


@given(seed=_seeds, limits=_limits, size=st.integers(1, 4))
@settings(max_examples=120)
def test_whatever_happens_there_is_one_ruling_an_incident_and_who_lives_learns_it(
    seed: int, limits: Limits, size: int
) -> None:
    draw = random.Random(seed)
    job = SimulatedJob(size, limits=limits)
    for _ in range(draw.randrange(20, 300)):
        _act(job, draw.choice(ACTS), draw.choice(job.agents), draw.uniform(0.0, 40.0))
    _calm(job)
    _check(job)
    last = max(job.rulings(), default=0)
    if last:
        for agent in job.running:
            assert agent.followed, "who lives has learned of it"
            assert agent.followed[-1].number == last
    job.running[0].suspect()  # and the next incident goes its way
    job.run(3.0)
    job.run_until_over()
    _check(job)
    assert max(job.rulings()) == last + 1


@given(seed=_seeds, size=st.integers(2, 4))
@settings(max_examples=60)
def test_an_agent_may_stop_at_any_point_of_an_incident_and_come_back(seed: int, size: int) -> None:
    draw = random.Random(seed)
    job = SimulatedJob(size)
    job.run(2.0)
    draw.choice(job.agents).suspect()
    victim = draw.choice(job.agents)
    for _ in range(draw.randrange(300)):
        agent = draw.choice(job.agents)
        draw.choice((agent.tick, agent.execute, agent.deliver, agent.see, agent.judge))()
        job.now += 0.05
    victim.asleep = True
    victim.alive = draw.random() < 0.5
    job.run(draw.uniform(0.0, 200.0), propose=True)
    _calm(job)
    _check(job)
    if job.rulings():
        assert all(agent.followed for agent in job.running)


def _state_of(job: SimulatedJob, state: State) -> Agent | None:
    return next((agent for agent in job.agents if agent.protocol.state == state), None)


@given(st.sampled_from(("looking", "reported", "leading", "judging", "judged", "ruled")), st.integers(2, 4))
@settings(max_examples=18)
def test_an_agent_may_be_killed_in_any_state_and_the_others_come_to_an_end(state: State, size: int) -> None:
    job = SimulatedJob(size)
    job.run(2.0)
    job.agents[-1].suspect()
    for _ in range(4000):
        found = _state_of(job, state)
        if found is not None:
            found.alive = False
            break
        agent = min(job.running, key=lambda one: one.due)
        job.now = max(job.now, agent.due)
        agent.tick()
        while agent.execute() or agent.deliver() or agent.see() or agent.judge():
            if agent.protocol.state == state:
                break
        if agent.protocol.state == "judged" and state == "ruled":
            agent.propose()
    else:
        raise AssertionError(f"nobody came into {state}")
    job.run_until_over()
    _check(job)
    assert all(agent.followed for agent in job.running)
