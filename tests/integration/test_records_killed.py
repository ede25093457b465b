"""Records of real agent processes that are killed, run out of room, and meet others of their name."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.records_agent import RecordsAgent, records_agents

from rankscope.agent.records.past import Past
from rankscope.diag.history.read import read_job
from rankscope.diag.history.story import history_of
from rankscope.diag.store.job import JobFolder


def names(agent: RecordsAgent) -> list[str]:
    return [event.name for event in agent.content.events]


def counters(past: Past) -> list[int]:
    history = past.history(allowed=9, workers=2)
    return [history.restarts_used, history.without_progress, history.failed_workers]


def a_job_with_two_restarts(agent: RecordsAgent) -> None:
    agent.do("started")
    agent.do("launched")
    agent.do("progressed", 7)
    for restarts in (1, 2):
        agent.do("failed", 1, "ValueError: x")
        agent.do("restarts", restarts)
        agent.do("launched", restarts)


def test_an_agent_that_was_killed_and_is_started_again_goes_on_counting(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        first = agents[0]
        a_job_with_two_restarts(first)
        created = JobFolder(first.folder).job()
        first.kill()
        second = RecordsAgent(tmp_path / "run-7")
        agents.append(second)
        assert (second.node, second.folder) == (first.node, first.folder)
        assert second.do("started") is None
        assert second.do("past") == [2, 3, 1]
        second.do("launched", 2)
        second.do("progressed", 8)
        second.do("failed", 1, "ValueError: x")
        assert second.do("past") == [2, 0, 1]
        job = JobFolder(second.folder).job()
        assert created is not None
        assert job is not None
        assert job.created == created.created
        content = second.content
        assert [event.number for event in content.events] == list(range(1, len(content.events) + 1))
        assert (content.unreadable, content.missing) == ((), ())
        second.do("ended", 1)
        assert second.do("close") == []
    history = history_of(read_job(JobFolder(tmp_path / "run-7")))
    assert [cycle.result for cycle in history.cycles] == ["restarted", "restarted", "cut off", "failed"]
    assert [cycle.number for cycle in history.cycles] == [1, 2, 3, 4]
    assert round(sum(one.seconds for one in history.spent), 3) == history.wall
    assert any(one.cause == "agent_gone" and one.seconds > 0 for one in history.spent)
    assert "agent.gone" in [moment.type for moment in history.moments]
    assert history.warnings == ()


def test_nothing_acknowledged_is_lost_by_a_kill_at_any_moment(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        for number in range(5):
            if number:
                agents.append(RecordsAgent(tmp_path / "run-7"))
            agent = agents[-1]
            for _ in range(200):  # whatever of them it comes to
                agent.say("event", "message", 2000)
            acknowledged = sum(bool(agent.answer()) for _ in range(10 + 17 * number))
            before = len(agents[0].content.events) if number == 0 else 0
            agent.kill()
            content = agent.content
            assert len(content.events) >= max(before, acknowledged)
            assert len({event.id for event in content.events}) == len(content.events)
            assert content.missing == ()
            assert len(content.unreadable) <= number + 1  # a torn line a kill at most
        numbers = [event.number for event in agents[-1].content.events]
        assert numbers == sorted(numbers)


def test_a_full_disk_in_the_middle_of_a_record_loses_nothing_and_spoils_nothing(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as (agent,):
        agent.do("started")
        agent.do("launched")
        size = agent.log.stat().st_size
        agent.do("limit", 300)  # an event of 2000 bytes is cut in the middle
        stored = [agent.do("event", "message", 2000), agent.do("event", "message", 2000)]
        assert stored == [False, False]
        assert agent.log.stat().st_size == size  # what was written of it was taken back
        agent.do("failed", 1, "ValueError: x")
        assert agent.do("past") == [0, 0, 1]  # counted in memory, once
        assert names(agent) == ["job.started", "cycle.started"]
        agent.do("limit", None)
        assert agent.do("event", "message", 10) is True
        content = agent.content
        assert [event.name for event in content.events] == [
            "job.started",
            "cycle.started",
            "message",
            "message",
            "worker.failed",
            "worker.failed",
            "message",
        ]
        assert (content.unreadable, content.missing) == ((), ())
        assert counters(agent.past) == [0, 0, 1]
        said = agent.do("close")
        assert isinstance(said, list)
        assert len(set(said)) == 1
        assert "File too large" in said[0]


def test_events_that_wait_for_room_are_written_though_nothing_new_happens(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as (agent,):
        agent.do("started")
        agent.do("limit", 10)
        assert agent.do("event", "message", 100) is False
        agent.do("retry")
        assert names(agent) == ["job.started"]
        agent.do("limit", None)
        agent.do("retry")
        assert names(agent) == ["job.started", "message"]


def test_an_agent_that_is_killed_while_the_disk_is_full_leaves_a_readable_log(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        a_job_with_two_restarts(agents[0])
        agents[0].do("limit", 50)
        agents[0].do("event", "message", 2000)
        agents[0].kill()
        agents.append(RecordsAgent(tmp_path / "run-7"))
        agents[1].do("started")
        assert agents[1].do("past") == [2, 3, 1]
        assert agents[1].content.unreadable == ()


def test_two_agents_of_one_name_have_counters_of_their_own_and_find_them_again(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        agents.append(RecordsAgent(tmp_path / "run-7"))
        first, second = agents
        assert second.node == f"{first.node}~2"
        a_job_with_two_restarts(first)
        second.do("started")
        second.do("launched")
        second.kill()
        agents.append(RecordsAgent(tmp_path / "run-7"))
        assert agents[-1].node == second.node
        agents[-1].do("started")
        assert agents[-1].do("past") == [0, 1, 0]
        first.kill()
        agents.append(RecordsAgent(tmp_path / "run-7"))
        assert agents[-1].node == first.node
        agents[-1].do("started")
        assert agents[-1].do("past") == [2, 3, 1]
    history = history_of(read_job(JobFolder(tmp_path / "run-7")))
    assert history.nodes == (first.node, second.node)
    assert [restart.record.restarts for restart in history.restarts] == [1, 2]
    assert history.warnings == ()


def test_an_agent_alone_finds_the_folder_of_the_one_that_was_killed(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7", shared=False) as agents:
        a_job_with_two_restarts(agents[0])
        agents[0].kill()
        agents.append(RecordsAgent(tmp_path / "run-7", shared=False))
        assert agents[1].folder == tmp_path / "run-7"
        agents.append(RecordsAgent(tmp_path / "run-7", shared=False))
        assert agents[2].folder == tmp_path / "run-7~2"
        agents[2].do("started")
        assert agents[2].do("past") == [0, 0, 0]


def test_a_child_that_outlives_a_killed_agent_does_not_keep_its_folder(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        agents[0].do("started")
        child = agents[0].do("fork")
        assert isinstance(child, int)
        try:
            agents[0].kill()
            agents.append(RecordsAgent(tmp_path / "run-7"))
            assert agents[1].node == agents[0].node
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("code", [0, 1, 75, 93])
def test_what_goes_on_under_a_run_id_depends_on_how_its_job_ended(tmp_path: Path, code: int) -> None:
    with records_agents(tmp_path / "run-7") as agents:
        a_job_with_two_restarts(agents[0])
        job = JobFolder(agents[0].folder).job()
        agents[0].do("ended", code)
        agents[0].do("close")
        agents.append(RecordsAgent(tmp_path / "run-7"))
        agents[1].do("started")
        assert agents[1].do("past") == ([0, 3, 1] if code == 75 else [0, 0, 0])
        again = JobFolder(agents[0].folder).job()
        assert job is not None
        assert again is not None
        assert (again.created == job.created) == (code == 75)
        assert again.ended is None
    history = history_of(read_job(JobFolder(tmp_path / "run-7")))
    assert history.earlier == (0 if code == 75 else 1)
    spent = {one.cause: one.seconds for one in history.spent}
    assert (spent["not_running"] > 0) == (code == 75)


def test_the_file_is_json_lines_with_cloudevents_names(tmp_path: Path) -> None:
    with records_agents(tmp_path / "run-7") as (agent,):
        agent.do("started")
        (line,) = agent.log.read_text().splitlines()
        event = json.loads(line)
        assert set(event) == {
            "id",
            "source",
            "type",
            "time",
            "data",
            "subject",
            "specversion",
            "sequence",
            "clock",
        }
        assert event["sequence"] == "0000000001"
        assert all(name.isalnum() and name.islower() for name in event)
