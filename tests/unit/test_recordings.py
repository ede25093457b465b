from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
import zstandard
from tests.recordings.plan import RECORDINGS, Recording
from tests.recordings.redact import ELSEWHERE, redacted
from tests.recordings.store import RECORDED, store

from rankscope.diag.store.incidents import IncidentFolder, incident_folders
from rankscope.diag.store.job import JobFolder

MOST_BYTES = 1_000_000


def test_the_same_place_stays_the_same_and_longer_ones_go_first() -> None:
    places = {"/srv/a": "/workspace", "/srv/a/home": "/records"}
    text = '"/srv/a/train.py" "/srv/a/home/jobs" "/srv/a/train.py"'
    assert redacted(text, places) == '"/workspace/train.py" "/records/jobs" "/workspace/train.py"'


def test_addresses_of_this_machine_are_replaced_and_those_of_the_loopback_are_not() -> None:
    assert redacted('"10.1.2.3:29500" "127.0.0.1:29500"', {}) == f'"{ELSEWHERE}:29500" "127.0.0.1:29500"'


@pytest.mark.parametrize("left", ["/root/x.py", "/home/someone/x.py", "/tmp/x/y"])
def test_a_path_that_is_left_is_refused(left: str) -> None:
    with pytest.raises(ValueError, match="a path of this machine is left"):
        redacted(f'{{"file": "{left}"}}', {"/srv": "/workspace"})


def test_a_job_is_stored_without_what_nobody_reads(tmp_path: Path) -> None:
    scratch = tmp_path / "job"
    records = JobFolder(scratch / "home" / "jobs" / "job")
    node = records.node("node-a")
    node.mkdir(parents=True)
    (records.path / "job.json").write_text(f'{{"command": ["{scratch}/train.py"]}}')
    (node / ".lock").touch()
    (node / "agent.json").write_text("{}")
    snapshot = records.incidents / "1" / "snapshot-a.json.zst"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(zstandard.compress(f'"{scratch}/home"'.encode()))
    stored = store(records, scratch, tmp_path / "recorded")
    names = sorted(str(path.relative_to(stored)) for path in stored.rglob("*") if path.is_file())
    assert names == ["incidents/1/snapshot-a.json.zst", "job.json", "nodes/node-a/agent.json"]
    assert (stored / "job.json").read_text() == '{"command": ["/workspace/train.py"]}'
    assert zstandard.decompress((stored / names[0]).read_bytes()) == b'"/records"'


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.run_id)
def test_what_is_recorded_is_what_is_planned(recording: Recording) -> None:
    folder = JobFolder(RECORDED / "jobs" / recording.run_id)
    diagnoses = [incident.diagnosis() for incident in _with_diagnosis(folder)]
    found = tuple(one for one, _again in groupby((one.verdict, one.culprits) for one in diagnoses))
    assert found == recording.found
    assert {one.world_size for one in diagnoses} <= {recording.ranks}
    assert [path.name for path in (folder.path / "nodes").iterdir()] == [recording.node]


def test_the_recordings_are_small_and_nothing_else_lies_among_them() -> None:
    assert {path.name for path in (RECORDED / "jobs").iterdir()} == {one.run_id for one in RECORDINGS}
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        data = path.read_bytes()
        redacted((zstandard.decompress(data) if path.suffix == ".zst" else data).decode(), {})


def _with_diagnosis(folder: JobFolder) -> list[IncidentFolder]:
    return [one for one in incident_folders(folder.incidents) if (one.path / "diagnosis.json").exists()]
