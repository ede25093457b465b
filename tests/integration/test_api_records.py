"""What the API answers, by a real server process over a stored job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api_control import UNWRITTEN, a_control
from tests.api_factory import INCIDENTS, ServedByHand, a_served_job, a_stored_job, descendants
from tests.health_factory import a_page, eventually, is_gone

from rankscope.agent.health.status import Check, HealthStatus, Suspicion, WorkerHealth
from rankscope.diag.model import Diagnosis, FrameVariables, JobSnapshot, RankSnapshot, ThreadStack
from rankscope.diag.store.incidents import IncidentFolder

RECORDS = (
    "/v1/job",
    "/v1/ranks",
    "/v1/incidents",
    f"/v1/incidents/{INCIDENTS[0]}",
    "/v1/events",
    "/v1/restarts",
    "/v1/settings",
    "/v1/page",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    with a_served_job(tmp_path_factory.mktemp("records")) as server:
        yield server


def test_a_job_has_its_agents_and_its_counts(served: ServedByHand) -> None:
    job = served.ask("/v1/job").json()
    assert job["job"] == "run-7"
    assert (job["node"], job["phase"]) == ("vm", "running")
    assert [one["node"] for one in job["nodes"]] == ["vm", "vm2"]
    assert (job["restarts"], job["incidents"], job["last_incident"]) == (1, 2, INCIDENTS[1])


def test_ranks_are_those_of_the_agent_as_it_published_them(served: ServedByHand) -> None:
    page = a_page(served.page.path)  # in place of the one that was: the server reads the one that it mapped
    page.close()
    worker = WorkerHealth(2, 0, 77, "hung", step=26, seconds_since_progress=29.0)
    status = HealthStatus(
        "run-7",
        "vm",
        os.getpid(),
        workers=(worker,),
        suspected=Suspicion("no progress", (2,)),
        restart_count=1,
    )
    served.page.publish(status)
    ranks = served.ask("/v1/ranks").json()
    assert ranks["suspected"] == {"reason": "no progress", "ranks": [2]}
    assert (ranks["restart_count"], ranks["world_size"]) == (1, 3)
    [rank] = ranks["ranks"]
    assert (rank["rank"], rank["node"], rank["state"], rank["step"]) == (2, "vm", "hung", 26)
    assert rank["seconds_since_progress"] >= 29.0
    assert rank["source"] == "agent"


def test_incidents_are_listed_and_each_has_its_diagnosis_and_decision(served: ServedByHand) -> None:
    listed = served.ask("/v1/incidents").json()["incidents"]
    assert [one["id"] for one in listed] == list(INCIDENTS)
    assert listed[0]["action"] == "restart"
    one = served.ask(f"/v1/incidents/{INCIDENTS[0]}").json()
    assert one["diagnosis"]["culprits"] == [2]
    assert one["decision"]["action"] == "restart"


@pytest.mark.parametrize("name", ["missing", "..", "%2e%2e", "..%2f..%2fjob.json", "%00", "x" * 200, "a%0ab"])
def test_no_other_file_can_be_had_as_an_incident(served: ServedByHand, name: str) -> None:
    reply = served.ask(f"/v1/incidents/{name}")
    assert reply.status in (400, 404)
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert b"train.py" not in reply.body


def test_events_are_read_in_pieces_from_an_event_or_a_time_on(served: ServedByHand) -> None:
    everything = served.ask("/v1/events").json()["events"]
    pieces: list[str] = []
    since, more = "", True
    while more:
        piece = served.ask(f"/v1/events?limit=3{since}").json()
        pieces += [event["id"] for event in piece["events"]]
        since, more = f"&since={pieces[-1]}", piece["more"]
    assert pieces == [event["id"] for event in everything]
    assert sorted(pieces) == sorted({*pieces})
    late = served.ask(f"/v1/events?since={everything[4]['time']}").json()["events"]
    assert [event["id"] for event in late] == pieces[len(pieces) - len(late) :]
    assert all(event["time"] >= everything[4]["time"] for event in late)


def test_an_event_that_was_just_written_is_there(served: ServedByHand) -> None:
    last = served.ask("/v1/events").json()["events"][-1]["id"]
    new = served.happens("message", rank=1, content="hello")
    found = served.ask(f"/v1/events?since={last}").json()["events"]
    assert [event["id"] for event in found] == [new]
    assert found[0]["data"] == {"rank": 1, "content": "hello"}


def test_restarts_have_their_faults_and_settings_their_source(served: ServedByHand) -> None:
    [restart] = served.ask("/v1/restarts").json()["restarts"]
    assert restart["record"]["reason"] == "rank 2 failed"
    assert [fault["rank"] for fault in restart["faults"]] == [2]
    settings = served.ask("/v1/settings").json()
    assert settings["live"] is False
    assert settings["settings"]["job-hang-interval"]["value"] == 180.0


def test_the_page_has_the_last_incident_or_the_one_that_is_asked_for(served: ServedByHand) -> None:
    assert served.ask("/v1/page").json()["report"]["head"]["incident"] == INCIDENTS[1]
    chosen = served.ask(f"/v1/page?incident={INCIDENTS[0]}").json()
    assert chosen["report"]["head"]["incident"] == INCIDENTS[0]
    assert served.ask("/v1/page?incident=missing").status == 404


@pytest.mark.parametrize(
    "path",
    ["/v1/job?x=1", "/v1/events?limit=0", "/v1/events?limit=1001", "/v1/events?limit=x",
     "/v1/events?limit=1&limit=2", "/v1/events?since=", "/v1/events?limit=%C2%B2", "/v1/job?token=abc"],
)  # fmt: skip
def test_a_question_that_is_none_is_one_clear_line(served: ServedByHand, path: str) -> None:
    reply = served.ask(path)
    assert reply.status == 400
    assert reply.json()["detail"]


def test_analyse_and_changes_say_that_there_is_no_agent(served: ServedByHand) -> None:
    assert served.ask("/v1/analyze", method="POST").status == 503
    body = b'{"change": {"job-hang-interval": 60}}'
    json = {"Content-Type": "application/json"}
    assert served.ask("/v1/settings", method="PATCH", headers=json, body=body).status == 503


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"change": {}}', "application/json", 422),
        (b'{"change": {"a": 1}, "x": 1}', "application/json", 422),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 60000, "application/json", 422),
        (b"", "application/json", 400),
        (b'{"change": {"a": 1}}', "text/plain", 415),
        (b'{"change": {"a": 1}}', "application/x-www-form-urlencoded", 415),
        (b"x" * 70000, "application/json", 413),
    ],
)
def test_a_body_that_is_none_is_refused(
    served: ServedByHand, body: bytes, content_type: str, status: int
) -> None:
    headers = {"Content-Type": content_type}
    reply = served.ask("/v1/settings", method="PATCH", headers=headers, body=body)
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")


def test_a_reader_that_is_killed_or_stopped_is_replaced(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        assert served.ask("/v1/job").status == 200
        [reader] = descendants(served.pid)
        os.kill(reader, signal.SIGKILL)
        eventually(lambda: is_gone(reader), "the reader is gone")
        eventually(lambda: served.ask("/v1/job").status == 200, "another one answers")
        [another] = descendants(served.pid)
        assert another != reader
    eventually(lambda: is_gone(another), "it ends with its server")


def test_damaged_records_are_told_and_do_not_hold_the_rest_back(tmp_path: Path) -> None:
    folder = a_stored_job(tmp_path / "jobs")
    (folder.incidents / INCIDENTS[0] / "diagnosis.json").write_bytes(b'{"job": 3')
    with (folder.node("vm") / "events.jsonl").open("ab") as log:
        log.write(b'{"id": "torn\n\xff\xfe\n[]\n')
    os.mkfifo(folder.incidents / INCIDENTS[1] / "decision.json.other")
    folder.job_file.write_bytes(b"")
    with a_served_job(tmp_path, folder=folder) as served:
        for path in RECORDS:
            assert served.ask(path).status in (200, 404), path
        listed = served.ask("/v1/incidents").json()
        assert [one["id"] for one in listed["incidents"]] == [INCIDENTS[1]]
        assert len(listed["warnings"]) == 1
        assert served.ask(f"/v1/incidents/{INCIDENTS[0]}").status == 404


def test_an_event_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        before = len(served.ask("/v1/events").json()["events"])
        log = served.folder.node("vm") / "events.jsonl"
        kept = log.read_bytes().splitlines(keepends=True)[:2]
        log.unlink()
        log.write_bytes(b"".join(kept))
        after = served.ask("/v1/events").json()["events"]
        assert 2 <= len(after) < before


def test_what_an_agent_could_not_write_is_there_while_it_says_so(tmp_path: Path) -> None:
    with a_control(tmp_path / "control") as agent, a_served_job(tmp_path, control=agent.path) as served:
        assert served.ask("/v1/events").json()["waiting"] == 0
        assert agent.asked == []
        check = {"store:records": Check("warn", "no space left")}
        served.page.publish(HealthStatus("run-7", "vm", os.getpid(), checks=check))
        events = served.ask("/v1/events").json()
        assert events["waiting"] == 1
        assert events["events"][-1]["id"] == "vm-unwritten"
        listed = served.ask("/v1/incidents").json()["incidents"]
        assert (listed[-1]["id"], listed[-1]["stored"]) == (UNWRITTEN, False)
        assert served.ask(f"/v1/incidents/{UNWRITTEN}").json()["stored"] is False


def test_one_analysis_at_a_time_and_the_second_is_told_when_to_come_again(tmp_path: Path) -> None:
    import threading

    with a_control(tmp_path / "control") as agent, a_served_job(tmp_path, control=agent.path) as served:
        agent.is_busy = True
        replies: list[int] = []
        first = threading.Thread(
            target=lambda: replies.append(served.ask("/v1/analyze", method="POST").status)
        )
        first.start()
        eventually(lambda: bool(agent.waiting), "it is under way")
        second = served.ask("/v1/analyze", method="POST")
        assert second.status == 409
        assert int(second.headers["Retry-After"]) > 0
        assert served.ask("/livez").status == 200
        agent.finish()
        first.join(60)
        assert replies == [200]
        agent.is_busy = False
        found = served.ask("/v1/analyze", method="POST")
        assert found.json()["verdict"] == "RankNonCommHang"
        drawn = served.ask("/v1/analyze?as=page", method="POST").json()
        assert drawn["head"]["verdict"] == "RankNonCommHang"
        assert served.ask("/v1/analyze?as=text", method="POST").status == 400


def test_settings_are_the_agents_own_and_are_changed_by_it(tmp_path: Path) -> None:
    json = {"Content-Type": "application/json"}
    with a_control(tmp_path / "control") as agent, a_served_job(tmp_path, control=agent.path) as served:
        assert served.ask("/v1/settings").json()["live"] is True
        body = b'{"change": {"job-hang-interval": 60}}'
        changed = served.ask("/v1/settings", method="PATCH", headers=json, body=body).json()
        assert changed["changed"] == {"job-hang-interval": {"old": 180.0, "new": 60}}
        body = b'{"change": {"diag-port": 60}}'
        refused = served.ask("/v1/settings", method="PATCH", headers=json, body=body)
        assert refused.status == 422
        assert "diag-port" in refused.json()["detail"]


def test_nothing_of_a_frames_locals_is_served(tmp_path: Path) -> None:
    folder = a_stored_job(tmp_path / "jobs")
    incident = IncidentFolder(folder.incidents / INCIDENTS[1])
    variables = (FrameVariables(0, (("password", "'hunter2-secret'"),)),)
    ranks = tuple(
        RankSnapshot(
            rank, "vm", threads=(ThreadStack(1, "MainThread", (), is_main=True, variables=variables),)
        )
        for rank in range(4)
    )
    for which in ("a", "b"):
        incident.write_snapshot(which, JobSnapshot("run-7", 1.0, 4, ranks))
    assert isinstance(incident.diagnosis(), Diagnosis)
    with a_served_job(tmp_path, folder=folder) as served:
        for path in (*RECORDS, f"/v1/incidents/{INCIDENTS[1]}", "/", "/metrics", "/health"):
            reply = served.ask(path)
            assert reply.status == 200, path
            assert b"hunter2" not in reply.body
