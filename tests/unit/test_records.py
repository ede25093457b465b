"""The agent's records: written where it can be, missed where it cannot, never in anybody's way."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.classify_factory import a_job, a_rank, judge

from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.records.writer import FileWriter, WriteTimeoutError
from rankscope.diag.classify import Slowdown
from rankscope.diag.store.events import read_events
from rankscope.diag.store.job import JobFile, JobFolder
from rankscope.diag.top.standing import standing_of


def test_what_a_write_raises_reaches_the_one_who_asked() -> None:
    writer = FileWriter()

    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        writer.run(fail)
    writer.run(lambda: None)
    writer.close()


def test_a_stuck_write_is_waited_for_once_and_later_writes_are_refused_at_once() -> None:
    writer, share = FileWriter(), threading.Event()

    def stuck() -> None:
        share.wait()

    with pytest.raises(WriteTimeoutError):
        writer.run(stuck, timeout=0.01)
    with pytest.raises(WriteTimeoutError):
        writer.run(lambda: None)
    share.set()
    writer.close()


def test_writing_goes_on_when_the_share_answers_again() -> None:
    writer, share, came = FileWriter(), threading.Event(), threading.Event()

    def stuck() -> None:
        share.wait()
        came.set()

    with pytest.raises(WriteTimeoutError):
        writer.run(stuck, timeout=0.01)
    share.set()
    assert came.wait(10)
    done: list[int] = []
    while not done:
        try:
            writer.run(lambda: done.append(1))
        except WriteTimeoutError:
            continue
    writer.close()


def test_trouble_is_said_once_and_remembered(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file where the folder should be")
    said: list[str] = []
    records = Records(JobFolder(tmp_path / "job"), said.append)
    records.event("job.started", {})
    records.close()
    assert not records.usable
    assert records.trouble
    assert len(set(said)) == 1
    assert str(tmp_path) in said[0]


def test_only_what_is_on_disk_counts_as_stored(tmp_path: Path) -> None:
    records = Records(JobFolder(tmp_path), lambda _line: None)
    look, diagnosis = a_job(a_rank(0)), judge(a_job(a_rank(0)))
    assert records.snapshot("one", "a", look)
    assert not records.is_stored("one")
    assert records.diagnosis("one", diagnosis)
    assert records.is_stored("one")
    (records.folder.incidents / "two").write_text("a file where the folder should be")
    assert not records.snapshot("two", "a", look)
    assert not records.diagnosis("two", diagnosis)
    assert not records.is_stored("two")
    records.event("stopping", {})
    assert records.why_not_stored("two") == "File exists"
    (records.folder.incidents / "three").write_text("")
    assert not records.snapshot("three", "a", look)
    (records.folder.incidents / "three").unlink()
    assert records.diagnosis("three", diagnosis)
    assert not records.is_stored("three")  # its snapshot is missing
    assert [one.incident for one in records.incidents] == [diagnosis.incident] * 3
    records.close()


class Watched(JobFolder):
    """Tells which threads have read ``job.json``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.readers: list[str] = []

    def job(self) -> JobFile | None:
        self.readers.append(threading.current_thread().name)
        return super().job()


def test_a_job_is_read_by_the_thread_that_a_share_may_keep(tmp_path: Path) -> None:
    records = Records(JobFolder(tmp_path), print)
    records.folder = folder = Watched(tmp_path)
    Ledger(records, run_id="run-7", command=["train.py"], nodes="1:1").job_started()
    assert folder.readers == ["rankscope-records"]
    assert records.stored_job() == folder.job()
    assert folder.job() is not None
    records.close()


def test_a_job_file_that_cannot_be_read_is_not_said_to_be_one_that_cannot_be_written(tmp_path: Path) -> None:
    class Lost(JobFolder):
        def job(self) -> JobFile | None:
            raise OSError(errno.EIO, "Input/output error", str(self.path))

    said: list[str] = []
    records = Records(JobFolder(tmp_path), said.append)
    records.folder = Lost(tmp_path)
    assert records.stored_job() is None
    records.close()
    (line,) = said
    assert line.startswith(f"cannot read job.json in {tmp_path} (Input/output error); training goes on")
    assert "write" not in line


def test_what_is_slow_is_told_with_the_step_since_which_the_named_rank_is(tmp_path: Path) -> None:
    records = Records(JobFolder(tmp_path), print)
    ledger = Ledger(records, run_id="run-7", command=["train.py"], nodes="1:1")
    found = judge(a_job(a_rank(0)), a_job(a_rank(0), seconds=4.0))
    slow = replace(found, verdict="RankNonCommSlow", culprits=(2,), since_step=97, incident="i-2")
    pace = Slowdown(before=0.2, now=0.5, since_step=41)
    ledger.slow(slow, pace, 58.0)
    ledger.slow(replace(slow, since_step=None), pace, 58.0)
    ledger.slow(replace(found, verdict="Healthy", culprits=()), pace, 58.0)
    ledger.slow_no_more("i-2", "a newer look finds another cause")
    records.close()
    (first, second, nobody, over), _ = read_events(records.node_path / "events.jsonl")
    assert (first.data["since_step"], first.data["pace_since_step"]) == (97, 41)
    assert (second.data["since_step"], second.data["pace_since_step"]) == (None, 41)
    assert "since_step" not in nobody.data
    assert (over.name, over.subject, over.data) == (
        "incident.recovered",
        "i-2",
        {"reason": "a newer look finds another cause"},
    )
    standing = standing_of([first])
    assert (standing.states, standing.is_alarm) == ({2: "slow"}, True)
    assert standing_of([first, over]).word == ""


def test_two_agents_of_one_host_get_folders_of_their_own(tmp_path: Path) -> None:
    first = Records(JobFolder(tmp_path), print)
    second = Records(JobFolder(tmp_path), print)
    assert first.node_path != second.node_path
    first.close()
    second.close()
    third = Records(JobFolder(tmp_path), print)
    assert third.node_path == first.node_path
    third.close()


def test_events_are_appended_by_the_next_agent_of_the_node(tmp_path: Path) -> None:
    paths: set[Path] = set()
    for number in range(2):
        records = Records(JobFolder(tmp_path), print)
        records.event("job.started", {"number": number})
        paths.add(records.node_path / "events.jsonl")
        records.close()
    (path,) = paths
    events, unreadable = read_events(path)
    assert [event.data["number"] for event in events] == [0, 1]
    assert unreadable == 0


def test_two_jobs_of_one_run_id_get_folders_of_their_own(tmp_path: Path) -> None:
    first = Records(JobFolder(tmp_path / "run"), print, shared=False)
    second = Records(JobFolder(tmp_path / "run"), print, shared=False)
    assert first.folder.path == tmp_path / "run"
    assert second.folder.path == tmp_path / "run~2"
    first.close()
    second.close()


def test_what_is_no_utf8_does_not_end_the_writing_thread() -> None:
    writer = FileWriter()

    def fail() -> None:
        "\udcff".encode()

    with pytest.raises(OSError, match="not writable"):
        writer.run(fail)
    writer.run(lambda: None)
    writer.close()
