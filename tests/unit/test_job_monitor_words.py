"""What the agent makes of workers' words: nothing is taken as it comes, and nobody floods it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.telling.worker_words import MOST_A_MINUTE, WorkerWords, one_line
from rankscope.diag.store.events import Event as StoredEvent
from rankscope.diag.store.events import read_events
from rankscope.diag.store.job import JobFolder
from rankscope.watchdog.timers.wire import Event, Skipped, decode

RANKS = (3, 4)


class Agent:
    """The agent's side without an agent: real records, the console as a list."""

    def __init__(self, folder: Path) -> None:
        self.console: list[str] = []
        self.records = Records(JobFolder(folder), self.console.append)
        self.ledger = Ledger(self.records, run_id="test", command=["train.py"], nodes="1:1")
        self.words = WorkerWords(self.ledger, say=self.console.append, once=self._once)

    def _once(self, line: str) -> None:
        if line not in self.console:
            self.console.append(line)

    def hear(self, name: str, *, now: float = 0.0, **data: object) -> None:
        self.words.take(Event(name, 7, data), ranks=RANKS, now=now)

    def stored(self) -> list[tuple[str, dict[str, object]]]:
        events, unreadable = read_events(self.records.node_path / "events.jsonl")
        assert unreadable == 0
        return [_short(event) for event in events]


def _short(event: StoredEvent) -> tuple[str, dict[str, object]]:
    return event.type.removeprefix("rankscope."), dict(event.data)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.records.close()


def test_a_message_is_recorded_as_it_is_and_shown_in_one_harmless_line(agent: Agent) -> None:
    agent.hear("message", rank=3, content="loss\n\x1b[2Jis \u202enan\x00")
    assert agent.stored() == [("message", {"rank": 3, "content": "loss\n\x1b[2Jis \u202enan\x00"})]
    assert agent.console == ["rank 3 says: loss [2Jis nan"]
    assert one_line("a" * 5000) == "a" * 200 + " ..."
    assert one_line(" " * 5000 + "a") == " ..."


def test_a_lone_surrogate_can_be_stored_and_shown(agent: Agent) -> None:
    said = decode(b'{"rankscope":1,"event":"message","pid":7,"rank":3,"content":"\\ud800"}')
    assert not isinstance(said, Skipped)
    agent.hear("message", rank=3, content="\ud800")
    agent.hear("retryable_errors", rank=3, keyword="\udcff", index=0, count=1)
    assert [data for _name, data in agent.stored()] == [
        {"rank": 3, "content": "\\ud800"},
        {"rank": 3, "values": {"retryable_errors": ["\\udcff"]}},
    ]


@pytest.mark.parametrize("rank", [None, "3", 5, -1, 3.5])
@pytest.mark.parametrize("name", ["message", "settings", "retryable_errors", "unheard_of"])
def test_what_does_not_come_from_one_of_our_ranks_is_dropped(agent: Agent, rank: object, name: str) -> None:
    agent.hear(name, rank=rank, content="x", values={"job_hang_interval": 5}, keyword="x", index=0, count=1)
    assert (agent.stored(), agent.console, agent.words.retryable_errors) == ([], [], frozenset())


@pytest.mark.parametrize("nonsense", [None, 5, ["x"], {"x": 1}, {"job": {"x": 1}}])
def test_nonsense_is_dropped(agent: Agent, nonsense: object) -> None:
    agent.hear("message", rank=3, content=nonsense)
    agent.hear("settings", rank=3, values=nonsense)
    agent.hear("retryable_errors", rank=3, keyword=nonsense, index=nonsense, count=1)
    assert (agent.stored(), agent.console) == ([], [])


def test_a_rank_that_talks_without_end_is_cut_short_and_counted(agent: Agent) -> None:
    for number in range(250):
        agent.hear("message", rank=3, content=str(number), now=number / 100)
    assert len(agent.stored()) == MOST_A_MINUTE
    assert agent.console[MOST_A_MINUTE:] == [
        "more than 100 messages of workers in a minute: the rest are only counted"
    ]
    agent.hear("message", rank=4, content="later", now=61.0)
    agent.ledger.job_ended("succeeded", 0)
    assert agent.stored()[-2:] == [
        ("message", {"rank": 4, "content": "later", "left_out": 150}),
        ("job.ended", {"result": "succeeded", "exit_code": 0, "messages_left_out": 150}),
    ]


def test_settings_are_recorded_by_rank_and_those_without_effect_are_said_once(agent: Agent) -> None:
    for rank in RANKS:
        values = {"job_hang_interval": 60, "max_num_of_same_error": 3, "no_such_name": 5}
        agent.hear("settings", rank=rank, values=values)
    known = {"job_hang_interval": 60, "max_num_of_same_error": 3}
    assert agent.stored() == [("settings.changed", {"rank": rank, "values": known}) for rank in RANKS]
    (line,) = agent.console
    assert line.startswith("set by a worker and only recorded: max_num_of_same_error;")


def test_values_that_no_record_can_hold_are_written_as_text(agent: Agent) -> None:
    wild: dict[str, object] = {
        "job_hang_interval": 10**30,
        "job_exit_hang_interval": math.nan,
        "critical_roles": ["ps"] * 500,
        "enable_job_restart": None,
    }
    agent.hear("settings", rank=3, values=wild)
    ((_name, data),) = agent.stored()
    values = data["values"]
    assert isinstance(values, dict)
    assert values["job_hang_interval"] == str(10**30)
    assert values["job_exit_hang_interval"] == "nan"
    assert len(values["critical_roles"]) == 200
    assert values["enable_job_restart"] is None


def test_keywords_of_all_ranks_are_kept_and_a_new_list_replaces_the_ranks_old_one(agent: Agent) -> None:
    for rank, keywords in ((3, ["a", "b"]), (4, ["c"]), (3, ["d"])):
        for index, keyword in enumerate(keywords):
            agent.hear("retryable_errors", rank=rank, keyword=keyword, index=index, count=len(keywords))
    assert agent.words.retryable_errors == {"c", "d"}
    agent.hear("retryable_errors", rank=3, keyword=None, index=0, count=0)
    assert agent.words.retryable_errors == {"c"}
    assert [data["values"] for _name, data in agent.stored()] == [
        {"retryable_errors": ["a", "b"]},
        {"retryable_errors": ["c"]},
        {"retryable_errors": ["d"]},
        {"retryable_errors": []},
    ]


def test_keywords_without_end_are_bounded(agent: Agent) -> None:
    for index in range(5000):
        agent.hear("retryable_errors", rank=3, keyword=f"error {index}", index=index + 1, count=10**9)
    assert len(agent.words.retryable_errors) == 100
    assert agent.stored() == []


def test_settings_without_end_are_cut_short_counted_and_recorded_at_last(agent: Agent) -> None:
    for number in range(250):
        agent.hear("settings", rank=3, values={"job_hang_interval": number}, now=number / 100)
    agent.hear("settings", rank=3, values={"enable_job_hang_detection": False}, now=3.0)
    agent.hear("retryable_errors", rank=4, keyword="reset", index=0, count=1, now=3.0)
    assert len(agent.stored()) == MOST_A_MINUTE
    assert agent.console == [
        (
            "more than 100 changed settings of workers in a minute: "
            "of the rest only the last values will be recorded"
        )
    ]
    agent.hear("message", rank=4, content="later", now=59.0)
    assert agent.stored()[MOST_A_MINUTE:] == [("message", {"rank": 4, "content": "later"})]
    agent.hear("settings", rank=3, values={"job_hang_interval": 7}, now=61.0)
    last = {"job_hang_interval": 249, "enable_job_hang_detection": False}
    assert agent.stored()[MOST_A_MINUTE + 1 :] == [
        ("settings.changed", {"rank": 3, "values": last, "left_out": 150}),
        ("settings.changed", {"rank": 4, "values": {"retryable_errors": ["reset"]}}),
        ("settings.changed", {"rank": 3, "values": {"job_hang_interval": 7}}),
    ]
    agent.words.finish()
    assert len(agent.stored()) == MOST_A_MINUTE + 4


def test_settings_that_wait_for_room_are_recorded_when_the_job_ends(agent: Agent) -> None:
    for number in range(150):
        agent.hear("settings", rank=3, values={"job_hang_interval": number})
    agent.words.finish()
    agent.words.finish()
    assert agent.stored()[MOST_A_MINUTE:] == [
        ("settings.changed", {"rank": 3, "values": {"job_hang_interval": 149}, "left_out": 49})
    ]
