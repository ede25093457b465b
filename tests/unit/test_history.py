"""``diag history``: all of it, half of it, of several nodes, of other versions, on 80 columns."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.history_factory import NodeLogBuilder, a_job_file, a_log, an_incident

from rankscope.diag.commands.history import main
from rankscope.diag.errors import UsageError
from rankscope.diag.history.read import read_job
from rankscope.diag.history.story import history_of
from rankscope.diag.history.tables import TABLES
from rankscope.diag.store.job import JobFolder
from rankscope.diag.store.launches import STAGES, Cycle

HANG = "20270115T082500Z-3f9c"
SETTINGS = {
    "on-hang": {"value": "auto", "source": "default"},
    "job-hang-interval": {"value": 300.0, "source": "RANKSCOPE_JOB_HANG_INTERVAL"},
}


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "run-7")


def slow(log: NodeLogBuilder, summary: str) -> NodeLogBuilder:
    data = {"verdict": "RankNonCommSlow", "kind": "data_loading", "culprits": [2], "summary": summary}
    return log.event("slow", {**data, "confidence": "high", "seconds": 20.0})


def a_long_life(node: str = "vm") -> NodeLogBuilder:
    """A slow rank, a hang that is restarted, then a killed agent and its successor."""
    log = a_log(node).agent(settings=SETTINGS).passes(1.5).launch(1).passes(7).trains().passes(130)
    slow(slow(log, "rank 2 takes 30 % longer").passes(60), "rank 2 takes 35 % longer")
    log.passes(100).event("suspected", {"seconds": 20.0, "reason": "quiet"}, subject=HANG).passes(5)
    log.event(
        "incident.confirmed", {"verdict": "RankNonCommHang", "summary": "rank 2 is stuck"}, subject=HANG
    )
    log.passes(155).event("decision", {"action": "restart", "reason": "restart 1 of 3"}, subject=HANG)
    log.fails(1, "closed by peer", root=False).fails(2).restart_begins().passes(5).launch(2).restart_done()
    log.passes(5).trains(1, 41).passes(3000).event("message", {"rank": 1, "content": "hello"})
    return log.passes(60).agent(settings=SETTINGS).launch(3).trains().passes(400).ends()


def test_the_stages_of_all_cycles_and_what_is_between_add_up_to_the_wall_time(folder: JobFolder) -> None:
    a_long_life().write(folder)
    a_job_file(folder, ended=4000, result="succeeded")
    an_incident(folder, HANG)
    history = history_of(read_job(folder))
    assert history.warnings == ()
    assert [cycle.result for cycle in history.cycles] == ["restarted", "cut off", "succeeded"]
    first, second, _third = history.cycles
    assert {stage: getattr(first, stage) for stage in STAGES} == {
        "rendezvous": 2.0,
        "start": 1.0,
        "first_step": 7.0,
        "training": 270.0,
        "hang_unnoticed": 20.0,
        "collection": 5.0,
        "analysis": 155.0,
        "stopping": 5.0,
    }
    assert (second.training, second.step, second.duration) == (3000.0, 41, 3008.0)
    spent = {one.cause: one.seconds for one in history.spent}
    assert (spent["agent"], spent["agent_gone"], spent["training"]) == (1.5, 60.0, 3670.0)
    assert sum(spent.values()) == history.wall == 3937.5
    assert history.lost == history.wall - 3670.0
    for cycle in history.cycles:
        assert round(sum(getattr(cycle, stage) for stage in STAGES), 3) == cycle.duration


def test_a_restart_has_all_its_fields_and_all_unfolds_the_faults_behind_it(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    a_long_life().write(folder)
    (restart,) = history_of(read_job(folder)).restarts
    record = msgspec.structs.asdict(restart.record)
    assert set(record) >= {"restarts", "restart_time", "node_name", "instance_name", "error_code"}
    assert set(record) >= {
        "error_message",
        "error_source",
        "reason",
        "result",
        "duration",
        "identity",
        "lost",
    }
    assert (record["result"], record["duration"], record["lost"]) == ("running", 8.0, 12.0)
    assert [(fault.rank, fault.is_root) for fault in restart.faults] == [(1, False), (2, True)]
    assert main([str(folder.path)]) == 0
    assert "2 faults behind it (ranks 1-2): --all shows them" in capsys.readouterr().out
    assert main([str(folder.path), "--all"]) == 0
    shown = capsys.readouterr().out
    assert "vm rank 1: exit code 1: closed by peer" in shown
    assert "vm rank 2, the first: exit code 1: ValueError: x" in shown
    assert "message: rank 1: hello" in shown


def test_what_is_slow_again_and_again_is_one_line_with_a_count(folder: JobFolder) -> None:
    a_long_life().write(folder)
    records = read_job(folder)
    (found,) = [moment for moment in history_of(records).moments if moment.type == "slow"]
    assert found.count == 2
    assert len([one for one in history_of(records, unfold=True).moments if one.type == "slow"]) == 2


def test_the_text_is_no_wider_than_80_columns_and_shows_every_part(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    a_long_life("a-node-with-a-rather-long-name.of.some.cluster").write(folder)
    a_log("node-b").agent().launch().trains().passes(3000).ends().write(folder)
    a_job_file(folder, ended=4000, result="succeeded")
    for flags in ([], ["--all"]):
        assert main([str(folder.path), *flags]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        for part in ("Where the time went", "Cycles", "Restarts", "What happened", "Settings in force"):
            assert part in shown
        assert "RANKSCOPE_JOB_HANG_INTERVAL" in shown


def test_json_is_one_object_and_every_table_is_csv(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    a_long_life().write(folder)
    a_job_file(folder)
    assert main(["--json", str(folder.path)]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["job"], len(told["cycles"])) == (1, "run-7", 3)
    assert told["settings"][1] == {
        "name": "job-hang-interval",
        "value": "300.0",
        "source": "RANKSCOPE_JOB_HANG_INTERVAL",
    }
    for table in TABLES:
        assert main([str(folder.path), "--csv", table]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert rows
        assert all(None not in row and None not in row.values() for row in rows)
    assert main(["--csv", str(folder.path)]) == 0  # the job where the table could stand
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["restarts"], row["error_message"], row["nodes"]) == ("1", "ValueError: x", "vm")


def test_a_text_that_a_spreadsheet_would_run_is_kept_from_it(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log().agent().launch().fails(1, "=cmd|'/c calc'!A1\nnext").ends(1).write(folder)
    assert main([str(folder.path), "--csv", "faults"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["message"] == "'=cmd|'/c calc'!A1 next"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "which job"),
        (["--csv"], "which job"),
        (["no-such-job"], "no such job"),
        (["run-7", "--csv", "figures"], "restarts, cycles"),
        (["run-7", "--csv", "cycles", "--json"], "one of them"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, arguments: list[str], what: str
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(folder.path))
    with pytest.raises(UsageError, match=what):
        main(arguments)


def test_what_all_nodes_did_together_is_one_restart_and_one_decision(folder: JobFolder) -> None:
    for node in ("node-a", "node-b"):
        log = a_log(node).agent().launch().fails(2 if node == "node-b" else 0, root=node == "node-b")
        log.event("decision", {"action": "restart", "reason": "restart 1 of 3"}, subject=HANG)
        log.restart_begins().launch(2).restart_done().ends().write(folder)
    records = read_job(folder)
    (restart,) = history_of(records).restarts
    assert restart.nodes == ("node-a", "node-b")
    assert [fault.rank for fault in restart.faults] == [0, 2]
    assert restart.records == ()
    (decision,) = [one for one in history_of(records).moments if one.type == "decision"]
    assert (decision.count, decision.nodes) == (2, ("node-a", "node-b"))
    (unfolded,) = history_of(records, unfold=True).restarts
    assert [record.node_name for record in unfolded.records] == ["node-a", "node-b"]


def test_a_clock_that_is_set_back_changes_neither_order_nor_durations(folder: JobFolder) -> None:
    log = a_log().agent().launch().trains().passes(50)
    log.skew = -7200.0
    log.event("decision", {"action": "notify", "reason": "a"}).passes(50)
    log.event("decision", {"action": "notify", "reason": "b"}).ends().write(folder)
    other = a_log("node-b").agent().passes(40).event("decision", {"action": "notify", "reason": "c"})
    other.passes(80).ends().write(folder)
    history = history_of(read_job(folder))
    assert (history.cycles[0].training, history.cycles[0].duration) == (100.0, 103.0)
    decided = [one.text for one in history.moments if one.type == "decision"]
    assert decided == ["notify: c", "notify: a", "notify: b"]
    assert sum(one.seconds for one in history.spent if one.node == "vm") == 103.0


def test_a_host_that_was_started_anew_is_measured_by_the_wall_clock(folder: JobFolder) -> None:
    log = a_log().agent().launch().trains().passes(50).event("message", {})
    log.boot = "bbbbbbbb"
    log.passes(100).agent().launch(2).ends().write(folder)
    spent = {one.cause: one.seconds for one in history_of(read_job(folder)).spent}
    assert (spent["training"], spent["agent_gone"]) == (50.0, 100.0)


def test_lines_that_cannot_be_read_and_events_that_are_missing_are_told_and_the_rest_is_shown(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_long_life().write(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b'{"id": "torn', b"\n", *lines[5:], lines[-1][:40]]))
    assert main([str(folder.path)]) == 0
    told = capsys.readouterr()
    assert f"{path}: lines 4,{len(lines)} cannot be read" in told.err
    assert f"{path}: 2 events are missing (sequence 4-5)" in told.err
    assert f"{folder.job_file}: No such file" in told.err
    assert "Cycles" in told.out
    assert "Restarts" in told.out


def test_what_is_no_regular_file_is_told_and_not_waited_for(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_log().agent().ends().write(folder)
    other = folder.node("other")
    other.mkdir()
    for fifo in (other / "events.jsonl", path.with_name("agent.json"), folder.job_file):
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
    assert main([str(folder.path)]) == 0
    told = capsys.readouterr()
    assert f"{other / 'events.jsonl'}: not a regular file; nothing is known of node other" in told.err
    assert f"{folder.job_file}: not a regular file" in told.err
    assert "succeeded" in told.out


@pytest.mark.parametrize("kept", [slice(1, None), slice(-1, None)])
def test_events_that_are_missing_before_the_first_are_told(
    folder: JobFolder, capsys: pytest.CaptureFixture[str], kept: slice
) -> None:
    path = a_long_life().write(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[kept]))
    assert main([str(folder.path)]) == 0
    count = len(lines) - len(lines[kept])
    gap = (
        f"{count} events are missing (sequence 1-{count})" if count > 1 else "1 event is missing (sequence 1)"
    )
    assert gap in capsys.readouterr().err


def test_a_line_of_a_megabyte_is_shown_by_its_beginning(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log().agent().event("message", {"rank": 1, "content": "word " * 200_000}).write(folder)
    assert main([str(folder.path), "--all"]) == 0
    shown = capsys.readouterr().out
    assert len(shown) < 20_000
    assert "characters more)" in shown


def test_records_of_another_version_show_what_they_share_with_this_one(folder: JobFolder) -> None:
    log = a_log().agent().launch()
    log.event(
        "cycle.ended",
        {"number": 1, "node": "vm", "began": "b", "training": 7.5, "start": "long", "schema": 9, "new": 1},
    )
    log.event("restart", {"restarts": "three", "reason": "x"}).event("of.the.future", {"what": [1, {"a": 2}]})
    log.passes(9).ends().write(folder)
    a_job_file(folder)
    folder.job_file.write_text(folder.job_file.read_text().replace('"schema":1', '"schema":9,"later":[]'))
    history = history_of(read_job(folder), unfold=True)
    assert [(cycle.training, cycle.start, cycle.duration) for cycle in history.cycles] == [(7.5, 0.0, 7.5)]
    assert history.restarts[0].record.reason == "x"
    assert "of.the.future" in [moment.type for moment in history.moments]
    warnings = "\n".join(history.warnings)
    assert "cycle 1 is of another version or damaged: start not known" in warnings
    assert "restarts, restart_time" in warnings
    assert "newer version (schema 9" in warnings


def test_incidents_without_events_and_events_without_incidents_are_both_shown(folder: JobFolder) -> None:
    log = a_log().agent().launch()
    log.event("incident.confirmed", {"verdict": "RankCommHang", "summary": "a"}, subject="gone").write(folder)
    an_incident(folder, HANG)
    (folder.incidents / "torn").mkdir()
    (folder.incidents / "torn" / "diagnosis.json").write_text("{")
    history = history_of(read_job(folder))
    confirmed = [one for one in history.moments if one.type == "incident.confirmed"]
    assert {one.incident for one in confirmed} == {"gone", HANG}
    assert [one.incident for one in history.moments if one.type == "decision"] == [HANG]
    assert any("incident gone of node vm is not among the stored ones" in one for one in history.warnings)
    assert any("torn/diagnosis.json: not readable" in one for one in history.warnings)


def test_a_folder_with_nothing_in_it_is_told_and_no_error(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "nodes" / "vm").mkdir(parents=True)
    folder.incidents.mkdir()
    assert main([str(folder.path)]) == 0
    told = capsys.readouterr()
    assert "nothing is known of node vm" in told.err
    assert "job run-7" in told.out


def test_earlier_jobs_of_the_same_run_id_are_shown_with_all(folder: JobFolder) -> None:
    log = a_log().agent().launch().ends(1, "failed").passes(1e6).agent().launch(2).passes(10).ends()
    log.write(folder)
    records = read_job(folder)
    last = history_of(records)
    assert (last.earlier, len(last.cycles), last.wall) == (1, 1, 13.0)
    both = history_of(records, unfold=True)
    assert (both.earlier, len(both.cycles), both.wall) == (0, 2, 1_000_016.0)


def test_a_watch_beside_an_agent_adds_what_it_saw_and_no_time(folder: JobFolder) -> None:
    a_log().agent().launch().passes(10).ends().write(folder)
    watch = a_log("vm~2").launch()
    slow(watch, "rank 2 takes longer").write(folder)
    (folder.node("vm~2") / "agent.json").unlink()
    history = history_of(read_job(folder))
    assert {one.node for one in history.spent} == {"vm"}
    assert [one.node for one in history.moments if one.type == "slow"] == ["vm~2"]


def test_a_cycle_with_figures_that_cannot_be_still_adds_up(folder: JobFolder) -> None:
    cycle = Cycle(1, "vm", "b", "e", 5.0, training=-3.0, start=2e12, stopping=1.25)
    log = a_log().agent().launch().cycle(cycle).passes(5)
    log.event("cycle.started", {"rendezvous": 1e300, "start": 9e8}).passes(1).ends().write(folder)
    history = history_of(read_job(folder))
    assert (history.cycles[0].duration, history.cycles[0].stopping) == (1.25, 1.25)
    assert sum(one.seconds for one in history.spent) == history.wall
