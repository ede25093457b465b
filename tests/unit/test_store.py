"""The job folder: names, atomic files, torn lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import Decision, JobSnapshot
from rankscope.diag.store.events import Event, EventLog, iso_time, parse_log, read_events
from rankscope.diag.store.files import MOST_JSON_BYTES, read_json, read_regular, write_json
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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / ("decision" * 31)
    write_json(path, a_decision("first"))

    def interrupted(_fd: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(type(error)):
        write_json(path, a_decision("second"))
    assert list(tmp_path.iterdir()) == [path]
    assert read_json(path, Decision).reason == "first"


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


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once_and_left_closed(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a.json")
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(StoreError, match="not a regular file"):
        read_json(tmp_path / "a.json", Decision)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_what_is_compressed_has_no_white_space_and_what_is_not_is_for_eyes(tmp_path: Path) -> None:
    for name in ("decision.json", "decision.json.zst"):
        write_json(tmp_path / name, a_decision("because  of   it"))
    packed = zstandard.ZstdDecompressor().decompress((tmp_path / "decision.json.zst").read_bytes())
    assert packed == msgspec.json.encode(a_decision("because  of   it"))
    assert (tmp_path / "decision.json").read_bytes().splitlines()[1] == b' "action": "restart",'


def test_no_decision_is_none_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    incident = IncidentFolder(tmp_path)
    assert incident.decision() is None
    (tmp_path / "decision.json").write_bytes(b"{")
    with pytest.raises(StoreError):
        incident.decision()


def test_events_are_each_there_once_in_order_however_the_log_is_read() -> None:
    lines = [msgspec.json.encode(an_event(number)) for number in (1, 2, 1, 3, 2)]
    whole = parse_log(b"\n".join(lines) + b"\n")
    torn = parse_log(b"\n".join([*lines, b'{"id":']))
    assert [event.id for event in whole.events] == ["1", "2", "3"]
    assert (torn.events, torn.unreadable, whole.unreadable) == (whole.events, (6,), ())


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
    times = (1e9, 1e9 + 0.002, 1e9 + 0.011, 1e9 + 0.999, 1e9 + 1, 2e9)
    ids = [new_incident_id(at) for at in times]
    assert ids == sorted(ids)
    assert iso_time(0.0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize("size", [0, 1, 1 << 17])
def test_a_file_is_read_to_its_end_also_what_came_behind_the_size_it_is_said_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * size)
    stat = os.fstat

    def grows(fd: int) -> os.stat_result:
        found = stat(fd)
        with path.open("ab") as file:
            file.write(b"y" * (1 << 17))
        return found

    monkeypatch.setattr(os, "fstat", grows)
    assert read_regular(path) == b"x" * size + b"y" * (1 << 17)


def test_a_file_that_no_memory_holds_is_said_and_not_read(tmp_path: Path) -> None:
    sparse = tmp_path / "diagnosis.json"
    with sparse.open("wb") as file:
        file.truncate(MOST_JSON_BYTES + 1)
    with pytest.raises(StoreError, match="too large to be read"):
        read_json(sparse, Decision)


def test_a_frame_that_claims_more_than_memory_holds_is_said_and_not_unpacked(tmp_path: Path) -> None:
    claims = tmp_path / "snapshot-a.json.zst"
    # Magic, a header with an 8 byte content size and one segment, the size, no data.
    claims.write_bytes(b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little"))
    with pytest.raises(StoreError, match="too large to be read"):
        read_json(claims, JobSnapshot)
