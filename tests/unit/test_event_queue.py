"""Events on their way to the disk: in order, numbered, kept while there is no room, each written once."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from tests.history_factory import a_log

from rankscope.agent.records.event_queue import EventQueue
from rankscope.agent.records.folder import Records
from rankscope.agent.records.node_lock import take_node
from rankscope.diag.store.events import (
    Event,
    EventLog,
    parse_log,
    read_log,
    seconds_between,
    sequence_text,
)
from rankscope.diag.store.job import JobFolder


def an_event(name: str = "decision", number: int = 0) -> Event:
    return Event(
        id=f"{name}-{number}", source="vm", type=f"rankscope.{name}", time="2026-01-01T00:00:00.000Z"
    )


def numbers(path: Path) -> list[int]:
    return [event.number for event in read_log(path).events]


def test_numbers_go_on_where_the_log_ends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for first in (1, 3):
        queue = EventQueue(path)
        queue.open()
        assert len(queue.earlier) == first - 1
        assert queue.put(an_event(number=first)).number == first
        queue.put(an_event(number=first + 1))
        queue.write()
        queue.close()
    assert numbers(path) == [1, 2, 3, 4]


def test_a_log_without_numbers_is_gone_on_with_as_well(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for number in range(3):
        log.append(an_event(number=number))
    log.close()
    queue = EventQueue(path)
    queue.open()
    assert queue.put(an_event()).number == 4


def test_what_waits_for_a_folder_that_cannot_be_opened_is_numbered_behind_what_is_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vm" / "events.jsonl"
    (tmp_path / "vm").write_text("in the way")
    queue = EventQueue(path)
    for number in range(3):
        queue.put(an_event(number=number))
        with pytest.raises(OSError, match="vm"):
            queue.write()
    assert queue.waiting == 3
    (tmp_path / "vm").unlink()
    log = EventLog(path)
    log.append(a_log().agent().events[0])
    log.close()
    queue.write()
    assert (queue.waiting, numbers(path)) == (0, [1, 2, 3, 4])


def test_past_its_bound_messages_are_given_up_before_what_is_counted_and_the_gap_can_be_seen(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vm" / "events.jsonl"
    queue = EventQueue(path, longest=4)
    for number, name in enumerate(["decision", "message", "restart", "message", "decision", "decision"]):
        queue.put(an_event(name, number))
    assert queue.waiting == 4
    queue.put(an_event("decision", 6))
    queue.write()
    content = read_log(path)
    assert [event.number for event in content.events] == [3, 5, 6, 7]
    assert content.missing == ((1, 2), (4, 4))


COUNTED = [
    "job.started",
    "cycle.started",
    "cycle.training",
    "worker.failed",
    "decision",
    "restart.begun",
    "restart",
    "cycle.ended",
    "job.ended",
]


def test_what_counters_are_made_of_is_flushed_and_what_is_only_told_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    queue = EventQueue(tmp_path / "events.jsonl")
    for number, name in enumerate([*COUNTED, "message", "suspected"]):
        queue.put(an_event(name, number))
        queue.write()
        assert len(flushed) == min(number + 1, len(COUNTED)), name
    queue.close()


def test_an_event_that_was_written_twice_counts_once() -> None:
    lines = [
        b'{"id":"1","source":"vm","type":"a","time":"t"}',
        b'{"id":"2","source":"vm","type":"a","time":"t"}',
    ]
    content = parse_log(b"\n".join([*lines, lines[0], b"", lines[1]]))
    assert [event.id for event in content.events] == ["1", "2"]


def test_durations_are_those_of_the_monotonic_clock_within_a_boot() -> None:
    log = a_log().agent().passes(5.0)
    log.skew = -3600.0
    log.ends()
    assert seconds_between(*log.events) == 5.0
    assert seconds_between(log.events[1], log.events[0]) == 0.0
    log.boot, log.skew = "bbbbbbbb", 0.0
    log.passes(7.0).ends()
    assert seconds_between(log.events[0], log.events[2]) == 12.0
    assert seconds_between(an_event(), Event("x", "vm", "a", "no time")) == 0.0


def test_a_line_that_cannot_be_written_whole_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.append(an_event(number=1))
    write = os.write

    def a_full_disk(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(fd, data[:-15])

    monkeypatch.setattr(os, "write", a_full_disk)
    with pytest.raises(OSError, match="No space"):
        log.append(an_event(number=2))
    monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(28, "no room for that")))
    with pytest.raises(OSError, match="No space"):
        log.append(an_event(number=3))
    monkeypatch.undo()
    log.append(an_event(number=4))
    log.close()
    content = read_log(path)
    assert [event.id for event in content.events] == ["decision-1", "decision-4"]
    assert content.unreadable == (2,)  # the one that could not even be taken back


def _hear(heard: list[str], event: Event) -> None:
    heard.extend([event.name, event.sequence])


def test_listeners_hear_of_each_event_stored_or_not_and_cannot_disturb_it(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("in the way")
    for folder, stored in ((tmp_path / "job", False), (tmp_path / "other", True)):
        heard: list[str] = []
        records = Records(JobFolder(folder), lambda _line: None)
        records.listeners.append(partial(_hear, heard))
        assert records.event("message", {}) is stored
        records.close()
        assert heard == ["message", sequence_text(1)]


def test_a_listener_that_fails_does_not_fail_the_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_event: Event) -> None:
        raise RuntimeError("no network")

    records = Records(JobFolder(tmp_path), lambda _line: None)
    records.listeners.append(fail)
    assert records.event("message", {})
    records.close()
    assert "could not pass an event on" in caplog.text


def test_an_agent_takes_the_folder_that_one_was_killed_in_before_any_other(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "run-7")
    a_log("vm").write(folder, phase="ended")
    a_log("vm~2").write(folder, phase="running")
    taken = [take_node(folder, "vm", shared=True, beside=False) for _ in range(3)]
    assert [lock.node for lock in taken] == ["vm~2", "vm", "vm~3"]
    for lock in taken:
        lock.release()


def test_a_watch_leaves_the_folders_of_agents_alone(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "run-7")
    a_log("vm").write(folder)
    watch = take_node(folder, "vm", shared=True, beside=True)
    agent = take_node(folder, "vm", shared=True, beside=False)
    assert (watch.node, agent.node) == ("vm~2", "vm")
    watch.release()
    agent.release()
    agent.release()  # twice is no harm


def test_a_folder_that_cannot_be_locked_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run-7").write_text("in the way")
    with pytest.raises(OSError, match="run-7"):
        take_node(JobFolder(tmp_path / "run-7"), "vm", shared=True, beside=False)


@pytest.mark.parametrize("how", ["removed", "moved away"])
def test_a_log_that_disappears_is_begun_anew_and_what_comes_then_is_where_it_is_looked_for(
    tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "vm"
    queue = EventQueue(folder / "events.jsonl")
    told: list[Path] = []
    queue.on_removed = told.append
    queue.put(an_event("decision", 1))
    queue.write()
    if how == "removed":
        shutil.rmtree(folder)
    else:
        folder.rename(tmp_path / "elsewhere")
    for number in (2, 3):
        queue.put(an_event("restart.begun", number))
        queue.write()
    content = read_log(folder / "events.jsonl")
    assert [event.number for event in content.events] == [2, 3]
    assert content.missing == ((1, 1),)
    assert told == [folder / "events.jsonl"]
    queue.close()
