"""The job folder: names, atomic files, torn lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import Decision, JobSnapshot
from rankscope.diag.store.events import Event, EventLog, iso_time, read_events
from rankscope.diag.store.files import read_json, write_json
from rankscope.diag.store.incidents import IncidentFolder, find_incident, new_incident_id
from rankscope.diag.store.job import JobFolder, find_job, folder_name, job_folder


def an_event(number: int) -> Event:
    return Event(id=str(number), source="host", type="rankscope.decision", time="t", data={"number": number})


def a_decision(reason: str = "because") -> Decision:
    return Decision(action="restart", reason=reason, time="2026-01-01T00:00:00.000Z", culprits=(1,))


@given(st.text() | st.binary().map(os.fsdecode))
def test_any_run_id_is_one_folder_and_can_be_read_back(run_id: str) -> None:
    name = folder_name(run_id)
    assert len(name) <= 200
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert "\0" not in name
    if run_id and run_id.encode("utf-8", "ignore").decode() == run_id and len(name) < 200:
        assert JobFolder(Path("/jobs") / name).run_id == run_id


def test_a_struct_survives_the_disk_plain_and_compressed(tmp_path: Path) -> None:
    for name in ("decision.json", "decision.json.zst"):
        write_json(tmp_path / name, a_decision())
        assert read_json(tmp_path / name, Decision) == a_decision()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decision.json", "decision.json.zst"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"action": 1}', b"(\xb5/\xfd"])
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    for name in ("a.json", "a.json.zst"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=name):
            read_json(tmp_path / name, Decision)


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"action":"log","reason":"r","time":"t","news":[1,2],"schema":9}')
    assert read_json(tmp_path / "a.json", Decision).action == "log"


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_json(tmp_path / "taken", a_decision())
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_torn_last_line_is_skipped_counted_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.append(an_event(1))
    log.close()
    path.write_bytes(path.read_bytes() + b'{"id":"2","sou')
    log = EventLog(path)
    log.append(an_event(3))
    log.close()
    events, unreadable = read_events(path)
    assert [event.id for event in events] == ["1", "3"]
    assert unreadable == 1


@given(st.binary())
def test_reading_events_never_fails_on_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("events") / "events.jsonl"
    path.write_bytes(data)
    read_events(path)


def test_a_job_is_found_by_run_id_by_its_beginning_and_by_its_folder(tmp_path: Path) -> None:
    folder = job_folder("run/7", tmp_path)
    incident = IncidentFolder(folder.incidents / "i")
    incident.write_snapshot("a", JobSnapshot(job="run/7", time=0.0, world_size=0, ranks=()))
    for name in ("run/7", "run", str(folder.path)):
        assert find_job(name, tmp_path).path == folder.path


def test_a_job_that_is_not_there_or_not_clear_is_a_usage_error(tmp_path: Path) -> None:
    for run_id in ("run-1", "run-2"):
        job_folder(run_id, tmp_path).path.mkdir(parents=True)
    with pytest.raises(UsageError, match="no such job: 'other'"):
        find_job("other", tmp_path)
    with pytest.raises(UsageError, match="run-1, run-2"):
        find_job("run-", tmp_path)


def test_the_last_incident_is_found_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    assert find_incident(tmp_path, None) is None
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "diagnosis.json").write_text("{}")
    last = find_incident(tmp_path, None)
    assert last is not None
    assert last.id == "2"
    with pytest.raises(UsageError, match="no incident '9' \\(stored: 1, 2\\)"):
        find_incident(tmp_path, "9")


def test_incident_ids_sort_by_time() -> None:
    assert new_incident_id(1e9) < new_incident_id(2e9)
    assert iso_time(0.0) == "1970-01-01T00:00:00.000Z"
