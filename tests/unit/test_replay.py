"""A recorded event log, asked again, gives the same counters and the same decisions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.history_factory import a_failure, a_hang

from rankscope.agent.deciding.decider import Decider
from rankscope.agent.notices.topics import is_for_the_records_only
from rankscope.agent.observing.trained import Trained
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.records.replay import differences
from rankscope.agent.settings.values import OnHang, Settings
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag.history.read import read_job
from rankscope.diag.model import Diagnosis, ExitFacts
from rankscope.diag.store.events import Event
from rankscope.diag.store.job import JobFolder


class Life:
    """One agent's decisions, real but for the workers."""

    def __init__(self, folder: Path, *, on_hang: OnHang = "auto") -> None:
        self.records = Records(JobFolder(folder), lambda _line: None)
        self.ledger = Ledger(self.records, run_id="run-7", command=["train.py"], nodes="1:2")
        self.said: list[str] = []
        settings = Settings(restart_enabled=True, max_restarts=2, max_same_error=2, on_hang=on_hang)
        self.decider = Decider(settings, self.ledger, self.said.append)
        self.ledger.job_started()
        self.decider.launched(4)
        self.done = Trained()

    def diagnosed(self, incident: str) -> Diagnosis:
        diagnosis = a_hang(incident, severity="error")
        self.records.diagnosis(incident, diagnosis)
        return diagnosis

    def hangs(self, incident: str) -> None:
        diagnosis = self.diagnosed(incident)
        for lingers in (True, False):
            self.decider.launched(4)
            considered = self.decider.consider_hang(
                diagnosis, self.done, silent=200.0, progress_seen=True, some_have_ended=lingers
            )
            assert considered is not None
            self.decider.decided(*considered)
        self.restarts()

    def fails(self, incident: str) -> None:
        failure = a_failure(2, node=self.records.node)
        self.ledger.workers_failed(incident, {2: ExitFacts(1, "x"), 1: ExitFacts(1, "y")}, root=failure)
        self.decider.launched(4)
        self.decider.on_failure(self.diagnosed(incident), failure, self.done)
        self.restarts()

    def restarts(self) -> None:
        decision = self.decider.last
        if decision is not None and decision.action == "restart":
            self.ledger.restart_begins(decision, restarts=self.ledger.past.restarts + 1)

    def all_the_rest(self) -> None:
        failure = a_failure(1, node=self.records.node)
        self.ledger.workers_failed(None, {1: ExitFacts(1, "x")}, root=failure)
        self.decider.launched(4)
        self.decider.on_worker_failure(failure, incident=None)
        self.decider.on_timer("a timer", signal_name="SIGKILL", is_rank=True, incident="")
        self.decider.on_stuck_kernel(None, self.done)
        self.decider.on_left_workers((1, 3), self.done)
        self.decider.on_unknown_state("nobody knows")
        self.decider.on_restart_timeout(70.0, 60.0)
        self.decider.on_stuck_agent("restart", 61.0)


@pytest.mark.parametrize(("on_hang", "is_said"), [("log", False), ("notify", True)])
def test_a_decision_for_the_records_only_is_told_to_nobody(
    tmp_path: Path, on_hang: OnHang, is_said: bool
) -> None:
    life = Life(tmp_path / "run-7", on_hang=on_hang)
    told: list[Event] = []
    life.records.listeners.append(told.append)
    life.hangs("hang-0")
    life.records.close()
    decisions = [event for event in told if event.name == "decision"]
    assert {event.data["action"] for event in decisions} == {on_hang}
    assert bool(life.said) == is_said
    assert {is_for_the_records_only(event) for event in decisions} == {not is_said}


@pytest.fixture
def log(tmp_path: Path) -> tuple[list[Event], dict[str, Diagnosis]]:
    """What an agent that is killed, and its successor, leave."""
    for number in range(2):
        life = Life(tmp_path / "run-7")
        life.hangs(f"hang-{number}")
        life.ledger.cycle_started(Launch((WorkerRef(0, 0, 1, 1),), restart_count=1, world_size=4))
        life.fails(f"failure-{number}")
        life.all_the_rest()
        life.records.close()
    read = read_job(JobFolder(tmp_path / "run-7"))
    (node,) = read.nodes
    return list(node.events), dict(read.diagnoses)


def test_a_log_of_ours_gives_the_same_decisions_and_counters(
    log: tuple[list[Event], dict[str, Diagnosis]],
) -> None:
    events, diagnoses = log
    assert len([event for event in events if event.name == "decision"]) == 20
    assert {event.data["action"] for event in events if event.name == "decision"} >= {"restart", "fail"}
    assert list(differences(events, diagnoses)) == []


def test_another_policy_another_count_and_what_is_missing_are_told(
    log: tuple[list[Event], dict[str, Diagnosis]],
) -> None:
    events, diagnoses = log
    without_restarts = [event for event in events if event.name != "restart.begun"]
    assert any(
        "restarts_used was 1, the log gives 0" in one for one in differences(without_restarts, diagnoses)
    )
    assert any("hang-0) is not stored" in one for one in differences(events, {}))
    changed = [
        msgspec.structs.replace(event, data={**event.data, "reason": "a whim"})
        if event.name == "decision"
        else event
        for event in events
    ]
    assert len(list(differences(changed, diagnoses))) == 20
    nonsense = [
        msgspec.structs.replace(event, data={**event.data, "asked": {"about": "x"}})
        for event in events
        if event.name == "decision"
    ]
    assert all("cannot be read" in one for one in differences(nonsense, diagnoses))
