"""What is counted for ``/metrics``: by a real ledger, and again by the agent after it from what is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.history_factory import a_failure, a_hang, a_log

from rankscope.agent.health.tallies import CAPTURE_BOUNDS, DETECTION_BOUNDS, Durations, IncidentTally, Tallies
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.records.tallies import EventTallies, restart_reason
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.job import JobFolder
from rankscope.watchdog.observations import Confirmed

NO_LOOKS = Durations.none(CAPTURE_BOUNDS)
CONFIRMED = Confirmed("quiet", 0.0, (2,), (0, 1, 3), "quiet")
DECIDED = Decision(action="restart", reason="no progress", time="2027-01-15T08:00:00Z", incident="hang-1")


def counted(tallies: EventTallies) -> Tallies:
    return tallies.now(captures=NO_LOOKS, timer_requests=0)


def an_incident(name: str, **changes: object) -> Diagnosis:
    diagnosis = a_hang(name, job="run-7", time="2027-01-15T08:00:00Z")
    return msgspec.structs.replace(diagnosis, **changes)


def a_life(ledger: Ledger) -> None:
    """Two hangs, one of them told twice, a slow rank, a failure of two workers, four restarts."""
    ledger.confirmed(an_incident("hang-1"), CONFIRMED, 12.0)
    ledger.confirmed(an_incident("hang-1", verdict="RankCommHang"), CONFIRMED, 40.0)
    ledger.restart_begins(DECIDED, restarts=1, verdict="RankNonCommHang", summary="rank 2 is stuck")
    ledger.confirmed(an_incident("hang-2", kind="desync"), CONFIRMED, 61.5)
    ledger.slow(an_incident("slow-1", verdict="RankNonCommSlow", kind="storage"), None, 20.0)
    ledger.slow(an_incident("slow-2", verdict="Healthy", kind="none"), None, 20.0)
    for rank in (0, 1):
        data: dict[str, object] = {"rank": rank, "exit_code": 1}
        ledger._records.event("worker.failed", data, subject="failure-1")
    ledger.restart_begins(DECIDED, restarts=2, verdict="RankNonCommHang", failure=a_failure())
    ledger.worker_restart_begins(3, restarts=3, reason="rank 3 failed", failure=a_failure(3))
    ledger.restart_begins(None, restarts=3)


@pytest.fixture(name="agent")
def _agent(tmp_path: Path) -> Callable[[], Ledger]:
    """Starts an agent of the same job once more, after the one before was killed."""
    records: list[Records] = []

    def start() -> Ledger:
        if records:
            records[-1].close()
        records.append(Records(JobFolder(tmp_path / "run-7"), pytest.fail))
        return Ledger(records[-1], run_id="run-7", command=["train.py"], nodes="1:1")

    return start


def test_a_job_s_incidents_restarts_and_detections_are_counted_once_each(agent: Callable[[], Ledger]) -> None:
    ledger = agent()
    a_life(ledger)
    found = ledger.counted(captures=NO_LOOKS.plus(0.06), timer_requests=7)
    assert set(found.incidents) == {
        IncidentTally("RankNonCommHang", "lock", 1),
        IncidentTally("RankNonCommHang", "desync", 1),
        IncidentTally("RankNonCommSlow", "storage", 1),
        IncidentTally("Exited", "dead", 1),
    }
    assert found.restarts == {"hang": 1, "failure": 2, "membership": 1}
    assert found.detections == Durations.none(DETECTION_BOUNDS).plus(12.0).plus(61.5)
    assert (found.captures.total, found.timer_requests) == (0.06, 7)


def test_an_agent_that_is_started_again_goes_on_from_the_stored_events(agent: Callable[[], Ledger]) -> None:
    first = agent()
    a_life(first)
    before = first.counted(captures=NO_LOOKS, timer_requests=0)
    second = agent()
    assert second.counted(captures=NO_LOOKS, timer_requests=0) == before
    second.restart_begins(None, restarts=3)
    after = second.counted(captures=NO_LOOKS, timer_requests=0)
    assert after.restarts["membership"] == before.restarts["membership"] + 1


def test_reasons_are_there_from_the_start_so_that_the_first_restart_is_an_increase() -> None:
    assert counted(EventTallies()).restarts == {"hang": 0, "failure": 0, "membership": 0}


def test_events_of_other_versions_and_of_others_cannot_make_new_series_without_end() -> None:
    log = a_log()
    for number in range(500):
        wild: dict[str, object] = {"verdict": f"New{number}", "kind": f"kind{number}", "seconds": "soon"}
        log.event("incident.confirmed", wild, subject=f"id{number}")
        log.event("restart.begun", {"error_code": number})
    found = counted(EventTallies.of(log.events))
    assert found.incidents == (IncidentTally("Unknown", "none", 500),)
    assert found.restarts == {"hang": 0, "failure": 500, "membership": 0}
    assert found.detections.total == 0


def test_a_failure_without_evidence_counts_by_its_root_alone() -> None:
    log = a_log().fails(1, root=False).fails(2).fails(3, root=False)
    assert counted(EventTallies.of(log.events)).incidents == (IncidentTally("Exited", "dead", 1),)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"is_counted": False, "error_code": "RankCommHang"}, "membership"),
        ({"error_code": "RankCommHang"}, "hang"),
        ({"error_code": "Unknown", "is_counted": True}, "hang"),
        ({"error_code": "-9"}, "failure"),
        ({"error_code": ""}, "failure"),
        ({}, "failure"),
    ],
)
def test_the_reason_of_a_restart(record: dict[str, object], reason: str) -> None:
    assert restart_reason(record) == reason


def test_a_duration_lies_in_the_bucket_whose_bound_it_does_not_pass() -> None:
    durations = Durations.none((1.0, 2.0))
    for seconds in (-3.0, 0.5, 1.0, 1.5, 2.0, 2.1, 1e9):
        durations = durations.plus(seconds)
    assert durations.counts == (3, 2, 2)
    assert durations.total == pytest.approx(1e9 + 7.1)
