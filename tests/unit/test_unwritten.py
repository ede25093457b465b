"""What is only in memory while a folder cannot be written, and what is not any more once it can."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.classify_factory import a_job, a_rank
from tests.slow_factory import judge_slow

from rankscope.agent.records.folder import Records
from rankscope.diag.store.job import JobFolder

FOUND = judge_slow(*(a_job(a_rank(0).but(step=at), a_rank(1).but(step=at)) for at in range(3)))


def test_events_and_incidents_that_could_not_be_written_are_told_until_they_can(tmp_path: Path) -> None:
    blocked = tmp_path / "job"
    blocked.write_text("no folder")
    records = Records(JobFolder(blocked), lambda _text: None)
    assert not records.usable
    for number in range(3):
        records.event("message", {"content": str(number)})
        records.diagnosis(f"i-{number}", msgspec.structs.replace(FOUND, incident=f"i-{number}"))
    events, diagnoses = records.unwritten()
    assert [event.data["content"] for event in events] == ["0", "1", "2"]
    assert [event.number for event in events] == [1, 2, 3]
    assert [one.incident for one in diagnoses] == ["i-0", "i-1", "i-2"]
    records.close()


def test_what_is_on_disk_is_not_told(tmp_path: Path) -> None:
    records = Records(JobFolder(tmp_path), lambda _text: None)
    records.event("message", {"content": "written"})
    records.diagnosis("i-1", msgspec.structs.replace(FOUND, incident="i-1"))
    assert records.unwritten() == ((), ())
    (tmp_path / "incidents").rename(tmp_path / "away")
    (tmp_path / "incidents").write_text("no folder")
    records.diagnosis("i-2", msgspec.structs.replace(FOUND, incident="i-2"))
    assert [one.incident for one in records.unwritten()[1]] == ["i-2"]
    records.close()
