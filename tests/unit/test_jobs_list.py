"""The rows of the list of jobs: how each stands, from records as agents leave them, half or foreign."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from tests.history_factory import BEGAN, NodeLogBuilder, a_job_file, a_log, an_incident

from rankscope.diag import proc
from rankscope.diag.history.here import Here
from rankscope.diag.history.read import read_job
from rankscope.diag.history.state import state_of_records
from rankscope.diag.jobs_list.model import JobRow
from rankscope.diag.jobs_list.order import newest_first, wanted
from rankscope.diag.jobs_list.read import job_paths, read_row
from rankscope.diag.periods import age_text, period_seconds, since_time, size_bytes, size_text
from rankscope.diag.report.jobs_text import render_jobs
from rankscope.diag.store.events import boot_name
from rankscope.diag.store.job import AgentFile, JobFolder, find_job, job_folder

HERE = Here("vm", "aaaaaaaa")
ELSEWHERE = Here("other", "bbbbbbbb")
NOW = BEGAN + 1000.0 + 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return job_folder("run-7", tmp_path)


def row(folder: JobFolder, here: Here = HERE) -> JobRow:
    return read_row(folder.path, here, now=NOW)


def a_run(node: str = "vm") -> NodeLogBuilder:
    return a_log(node).agent().launch().fails(2).restart_begins().restart_done().launch(2)


def test_a_job_that_ended_says_what_came_of_it(folder: JobFolder) -> None:
    a_job_file(folder, ended=50.0, result="succeeded")
    a_run().ends().write(folder)
    an_incident(folder, "20261129T164000Z-0fb3f9c")
    found = row(folder)
    assert (found.state, found.result, found.restarts, found.world_size) == ("ended", "succeeded", 1, 4)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "lock", (2,))
    assert (found.incident, found.incidents, found.nodes) == ("20261129T164000Z-0fb3f9c", 1, ("vm",))
    assert found.age == 3600.0
    assert found.notes == ()


def test_a_job_whose_agent_is_gone_without_a_last_word_does_not_run(folder: JobFolder) -> None:
    a_job_file(folder)
    a_run().write(folder)
    assert row(folder).state == "killed"


@pytest.mark.parametrize("here", [ELSEWHERE, Here("vm", "bbbbbbbb"), Here("other", "aaaaaaaa")])
def test_a_job_of_another_host_or_boot_is_only_said_to_have_been_heard(folder: JobFolder, here: Here) -> None:
    a_job_file(folder)
    a_run().write(folder)
    found = row(folder, here)
    assert found.state == "silent"
    assert "heard 59m ago" in render_jobs([found], now=NOW)


def test_what_its_workers_write_is_a_sign_of_life(folder: JobFolder) -> None:
    a_job_file(folder)
    a_run().write(folder)
    log = folder.node("vm") / "logs" / "attempt_0" / "0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.touch()
    os.utime(log, (NOW - 10, NOW - 10))
    assert "heard 10s ago" in render_jobs([row(folder, ELSEWHERE)], now=NOW)


def test_a_job_runs_while_its_agent_lives_and_not_when_its_number_is_another_s(folder: JobFolder) -> None:
    a_job_file(folder)
    a_run().write(folder)
    ticks = proc.start_ticks(os.getpid())
    assert ticks is not None
    for start, state in ((ticks, "running"), (ticks - 1, "killed"), (0, "killed")):
        agent = AgentFile("vm", os.getpid(), start, "running")
        (folder.node("vm") / "agent.json").write_bytes(msgspec.json.encode(agent))
        assert row(folder).state == state


def test_of_several_nodes_one_that_lives_elsewhere_keeps_it_silent(folder: JobFolder) -> None:
    a_job_file(folder)
    a_run("vm").ends(75, "failed").write(folder)
    a_run("far").write(folder)
    assert row(folder).state == "silent"
    assert row(folder).nodes == ("far", "vm")


def test_a_job_has_not_ended_while_an_agent_of_another_host_may_run(folder: JobFolder) -> None:
    a_job_file(folder, ended=50.0, result="succeeded")
    a_run("vm").ends().write(folder)
    a_run("far").write(folder)
    assert row(folder).state == "silent"
    assert state_of_records(read_job(folder), now=NOW)[0] == "silent"
    assert read_row(folder.path, HERE, now=NOW + 2 * 86400).state == "ended"
    a_run("far").ends().write(folder)
    assert (row(folder).state, row(folder).result) == ("ended", "succeeded")


def test_an_agent_that_lives_goes_before_a_last_word(folder: JobFolder) -> None:
    """Two agents of one run id on a host: the one that has ended said so, the other runs."""
    a_job_file(folder, ended=50.0, result="succeeded")
    node = os.uname().nodename
    log = a_log(node)
    log.boot = boot_name()
    log.agent().launch().ends().write(folder)
    for phase, state in (("running", "running"), ("ended", "ended")):
        agent = AgentFile(node, os.getpid(), proc.start_ticks(os.getpid()) or 0, phase)
        (folder.node(node) / "agent.json").write_bytes(msgspec.json.encode(agent))
        assert row(folder, Here(node, boot_name())).state == state
        assert state_of_records(read_job(folder), now=NOW)[0] == state


def test_of_two_folders_with_one_run_id_each_has_the_name_that_finds_it(folder: JobFolder) -> None:
    a_job_file(folder)
    a_run().write(folder)
    copy = folder.path.with_name("run-7-copy")
    shutil.copytree(folder.path, copy)
    assert (row(folder).job, row(JobFolder(copy)).job) == ("run-7", "run-7-copy")
    assert read_job(JobFolder(copy)).run_id == "run-7-copy"
    root = folder.path.parent.parent
    assert find_job(row(JobFolder(copy)).job, root).path == copy
    long = job_folder("x" * 300, root)
    a_job_file(long)
    text = long.job_file.read_text().replace(long.run_id, "x" * 300)
    long.job_file.write_text(text)
    assert row(long).job == "x" * 300
    assert find_job(row(long).job, root).path == long.path


def test_a_job_that_asked_to_be_run_again_says_so(folder: JobFolder) -> None:
    a_job_file(folder, ended=50.0, result="failed")
    a_run().ends(75, "failed").write(folder)
    assert row(folder).notes == ("asked to be run again (exit code 75)",)


def test_restarts_are_those_of_the_last_job_of_the_run_id(folder: JobFolder) -> None:
    a_job_file(folder, created=500.0)
    log = a_run().ends()
    log.restarts = 0
    log.agent().launch().write(folder)
    assert row(folder).restarts == 0


def test_a_half_written_job_is_a_row_with_a_note(folder: JobFolder) -> None:
    folder.path.mkdir(parents=True)
    assert (row(folder).state, row(folder).notes[0][:9]) == ("damaged", "job.json:")
    folder.job_file.write_text('{"run_id": "run-7", "crea')
    assert row(folder).notes[0].startswith("job.json: not readable")
    a_run().write(folder)
    events = folder.node("vm") / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-40])
    assert row(folder).state == "killed"
    events.write_bytes(b"\0\0\0")
    assert "node vm has no readable event" in row(folder).notes
    events.unlink()
    events.mkdir()
    assert any("events of node vm" in note for note in row(folder).notes)


def test_a_diagnosis_that_cannot_be_read_is_a_note_and_the_one_before_it_counts(folder: JobFolder) -> None:
    a_job_file(folder, ended=50.0, result="failed")
    a_run().ends(1, "failed").write(folder)
    an_incident(folder, "1")
    an_incident(folder, "2")
    (folder.incidents / "2" / "diagnosis.json").write_text("{}")
    found = row(folder)
    assert (found.incident, found.incidents) == ("1", 2)
    assert found.notes == ("the diagnosis of incident 2 cannot be read",)


def test_links_files_and_hidden_folders_are_no_jobs(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    (jobs / "real").mkdir(parents=True)
    (jobs / ".pruned-1").mkdir()
    (jobs / "file").touch()
    (jobs / "link").symlink_to("real")
    assert [path.name for path in job_paths(tmp_path)] == ["real"]
    assert job_paths(tmp_path / "nowhere") == ()


@pytest.mark.parametrize("host", ["vm", "another-container"])
def test_the_state_is_that_of_the_whole_history(
    folder: JobFolder, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container of another name on the same kernel, with the same boot, sees no process of this one."""
    monkeypatch.setattr("socket.gethostname", lambda: host)
    here = Here(host, boot_name())
    logs = {
        "running": a_run(),
        "killed": a_run(),
        "ended": a_run().ends(),
    }
    for state, log in logs.items():
        log.boot = boot_name()
        made = job_folder(f"job-{state}", folder.path.parent.parent)
        fresh = a_log()
        fresh.boot = boot_name()
        a_job_file(made)
        fresh.agent().launch()
        if state == "ended":
            fresh.ends()
        fresh.write(made)
        if state == "running":
            agent = AgentFile("vm", os.getpid(), proc.start_ticks(os.getpid()) or 0, "running")
            (made.node("vm") / "agent.json").write_bytes(msgspec.json.encode(agent))
        expected = "silent" if state == "killed" and host != "vm" else state
        assert read_row(made.path, here, now=NOW).state == expected
        if host == "vm" or state != "running":
            assert state_of_records(read_job(made), now=NOW)[0] == expected


def test_only_what_was_asked_for_the_newest_first() -> None:
    old = JobRow("old", "ended", created="2026-11-01T00:00:00Z", heard="2026-11-02T00:00:00Z")
    new = JobRow("new", "killed", created="2026-11-20T00:00:00Z")
    run = JobRow("run", "running", created="2026-10-01T00:00:00Z")
    odd = JobRow("odd", "damaged")
    rows = [old, odd, run, new]
    assert [one.job for one in newest_first(rows)] == ["new", "old", "run", "odd"]
    since = since_time("2026-11-10", NOW)
    assert [one.job for one in wanted(rows, since=since)] == ["run", "new"]
    assert [one.job for one in wanted(rows, running=True)] == ["run"]


def test_a_run_id_is_never_cut_and_nothing_of_a_job_is_interpreted() -> None:
    rows = [JobRow("a" * 60, "running", age=7.0), JobRow("evil\x1b[31m\n", "damaged", notes=("\x07",))]
    text = render_jobs(rows, now=NOW, width=80)
    lines = text.splitlines()
    assert lines[1].startswith("a" * 60)
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("36h", 129600), ("2d", 172800), ("1w", 604800), ("1.5h", 5400)],
)
def test_periods(text: str, seconds: float) -> None:
    assert period_seconds(text) == seconds
    assert since_time(text, 1e9) == 1e9 - seconds


@pytest.mark.parametrize("text", ["", "2", "d", "-1d", "1y", "2026-13-01", "yesterday", "9" * 40 + "d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        since_time(text, time.time())


def test_sizes_and_ages_are_read_and_shown() -> None:
    assert [size_bytes(text) for text in ("7", "1k", "500M", "10GiB", "1.5t")] == [
        7,
        1024,
        500 << 20,
        10 << 30,
        3 << 39,
    ]
    assert [size_text(size) for size in (0, 1023, 1024, 17 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "17 MiB",
        "5.0 TiB",
    ]
    assert [age_text(age) for age in (0, 119, 120, 7200, 172800)] == ["0s", "119s", "2m", "2h", "2d"]
    with pytest.raises(ValueError, match="size"):
        size_bytes("many")
