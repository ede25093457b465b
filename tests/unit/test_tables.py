"""``open_job`` and ``open_jobs``: real records, made ones, half of them, and those of other versions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
import zstandard
from tests.history_factory import BEGAN, a_job_file, a_log, an_incident
from tests.tables_factory import (
    ALL,
    a_copy,
    a_seen_rank,
    a_snapshot,
    an_all_reduce,
    declared,
    frames,
    quietly,
    records,
    rewritten,
    shapes,
    the_recorded_job,
)
from tests.unit.test_history import HANG, a_long_life

from rankscope.diag import IncompleteRecords, open_job, open_jobs
from rankscope.diag.classify.pace import RankLooks, share_evidence
from rankscope.diag.commands.analyze import main as analyze
from rankscope.diag.commands.history import main as history
from rankscope.diag.errors import UsageError
from rankscope.diag.merge.normalise import show_frame
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder
from rankscope.diag.tables.columns import Columns
from rankscope.diag.tables.declare import Table, moment
from rankscope.diag.tables.declared import OF_A_JOB, OF_JOBS
from rankscope.diag.tables.frames import frame_of
from rankscope.diag.tables.of_incidents import communication_shares
from rankscope.diag.tables.page import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "dataframes.md"


@pytest.fixture(scope="module")
def real() -> Any:
    return open_job(the_recorded_job())


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "jobs" / "run-7")


def said(verb: Any, *words: str, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What ``--json`` says."""
    verb([*words, "--json"])
    decoder = json.JSONDecoder()
    text, found = capsys.readouterr().out.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def same_time(text: str | None) -> object:
    return None if text is None else pd.Timestamp(text)


def test_the_reference_page_is_the_one_made_of_the_declarations() -> None:
    assert PAGE.read_text() == page(), "make docs"


def test_every_table_of_an_empty_job_has_its_columns_with_their_dtypes(folder: JobFolder) -> None:
    folder.incidents.mkdir(parents=True)
    with pytest.warns(IncompleteRecords, match="job.json"):
        job = open_job(folder.path)
    for table in OF_A_JOB:
        frame = job.frame(table.name)
        assert shapes(frame) == declared(table), table.name
        assert frame.empty


def test_a_real_job_has_rows_in_every_table_but_faults_with_the_same_dtypes(real: Any) -> None:
    for table in OF_A_JOB:
        frame = real.frame(table.name)
        assert shapes(frame) == declared(table), table.name
        assert frame.empty == (table.name == "faults")
    assert real.warnings == []


def test_every_table_is_a_method_and_has_a_heading_on_the_page(real: Any) -> None:
    for name in ALL:
        assert getattr(real, name)().equals(real.frame(name))
        assert f"\n## {name}()\n" in page()


def test_restarts_cycles_and_spent_are_what_history_says(
    real: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (told,) = said(history, str(the_recorded_job()), capsys=capsys)
    assert [
        {**row, "restart_time": same_time(row["restart_time"])}
        for row in ({**one["record"], "nodes": one["nodes"]} for one in told["restarts"])
    ] == [{**row, "schema": 1} for row in records(real.restarts())]
    assert [
        {**row, "began": same_time(row["began"]), "ended": same_time(row["ended"])} for row in told["cycles"]
    ] == [{**row, "schema": 1} for row in records(real.cycles())]
    assert told["spent"] == records(real.spent())
    assert (real.job.wall, real.job.lost) == (told["wall"], told["lost"])
    assert (real.job.result, real.job.world_size, list(real.job.nodes)) == (
        told["result"],
        told["world_size"],
        told["nodes"],
    )
    assert real.job.started == pd.Timestamp(told["created"])
    assert real.job.ended == pd.Timestamp(told["ended"])


def test_incidents_ranks_stacks_and_evidence_are_what_analyze_says(
    real: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (told,) = said(analyze, str(the_recorded_job()), "--all", capsys=capsys)
    (row,) = records(real.incidents())
    for name in ("verdict", "kind", "severity", "confidence", "culprits", "nodes", "summary", "rule"):
        assert row[name] == told[name]
    where = told["location"]
    assert [row["location_rank"], row["function"], row["file"], row["line"], row["source"]] == [
        where[name] for name in ("rank", "function", "file", "line", "source")
    ]
    assert row["time"] == same_time(told["time"])
    assert row["is_stored"]
    ranks = records(real.ranks())
    assert [{name: one[name] for name in told["ranks"][0]} for one in ranks] == told["ranks"]
    stacks = records(real.stacks())
    assert [{name: one[name] for name in told["stacks"][0]} for one in stacks] == told["stacks"]
    assert [one["rank_list"] for one in stacks if one["is_compared"]] == [[2], [0, 1, 3]]
    facts = records(real.evidence())
    assert [{name: one[name] for name in told["evidence"][0]} for one in facts] == told["evidence"]


def test_an_incident_has_its_suspicion_its_publication_and_what_was_decided(real: Any) -> None:
    (row,) = records(real.incidents())
    events = real.events().set_index("type")
    data = json.loads(events.loc["incident.confirmed", "data"])
    assert row["no_progress"] == data["seconds"]
    assert row["suspected"] == events.loc[["suspected"], "time"].min()
    assert row["suspicion"] == "quiet"
    assert row["suspected"] <= row["confirmed"] <= row["decided"]
    assert row["action"] == "restart"
    assert row["recovered"] is None


def test_threads_steps_groups_and_collectives_are_what_the_snapshots_hold(real: Any) -> None:
    (incident,) = real.incidents()["incident"]
    stored = IncidentFolder(the_recorded_job() / "incidents" / incident)
    threads, steps, groups = real.threads(), real.steps(), real.groups()
    for name in "ab":
        look = stored.snapshot(name)
        assert look is not None
        for rank in look.ranks:
            seen = threads[(threads["look"] == name) & (threads["rank"] == rank.rank)]
            assert list(seen["thread_id"]) == [one.thread_id for one in rank.threads]
            assert list(seen["stack"]) == [tuple(map(show_frame, one.frames)) for one in rank.threads]
            assert rank.progress is not None
            (step,) = records(steps[(steps["look"] == name) & (steps["rank"] == rank.rank)])
            assert step["step"] == rank.progress.step
            assert step["since_step"] == rank.progress.seconds_since_step
            stands = groups[(groups["look"] == name) & (groups["rank"] == rank.rank)]
            assert list(stands["enqueued"]) == [one.enqueued for one in rank.progress.groups]
    newest = stored.snapshot("b")
    assert newest is not None
    entries = [(rank.rank, one) for rank in newest.ranks if rank.record for one in rank.record.entries]
    calls = records(real.collectives())
    assert [(row["rank"], row["group"], row["seq"], row["op"], row["is_completed"]) for row in calls] == [
        (rank, one.group, one.seq, one.op, one.is_completed) for rank, one in entries
    ]
    assert [row["called"].value for row in calls] == [one.created_ns for _, one in entries]


def test_the_edges_of_the_wait_for_graph_come_of_one_explode(real: Any) -> None:
    edges = real.ranks().explode("waits_for")[["rank", "waits_for"]].dropna()
    assert sorted(map(tuple, edges.to_numpy())) == [(0, 2), (1, 2), (3, 2)]


def test_a_returned_frame_is_the_callers_own(real: Any) -> None:
    changed = real.incidents()
    changed["verdict"] = "Healthy"
    changed.loc[0, "kind"] = "none"
    assert records(real.incidents()[["verdict", "kind"]]) == [
        {"verdict": "RankNonCommHang", "kind": "data_loading"}
    ]


def test_what_a_rank_said_is_of_the_newest_look(real: Any) -> None:
    steps = real.steps()
    newest = steps[steps["look"] == "b"].set_index("rank")["since_step"]
    assert real.ranks().set_index("rank")["since_step"].equals(newest)
    assert not newest.equals(steps[steps["look"] == "a"].set_index("rank")["since_step"])


def test_of_several_suspicions_the_first_counts_and_of_decisions_the_last(folder: JobFolder) -> None:
    log = a_log().agent().launch()
    for clock, action in (("quiet", "log"), ("again", "restart")):
        log.passes(5).event("suspected", {"clock": clock}, subject=HANG)
        log.passes(5).event("decision", {"action": action}, subject=HANG)
    log.event("incident.confirmed", {"verdict": "RankCommHang", "seconds": 12.5}, subject=HANG).write(folder)
    a_job_file(folder)
    with quietly():
        (row,) = records(open_job(folder.path).incidents())
    assert (row["suspicion"], row["action"], row["no_progress"]) == ("quiet", "restart", 12.5)
    assert row["decided"] - row["suspected"] == pd.Timedelta(seconds=15)


def test_lateness_is_against_the_first_rank_of_the_node_and_steps_are_told_by_both_looks(
    folder: JobFolder,
) -> None:
    a_job_file(folder)
    an_incident(folder, HANG)
    stored = IncidentFolder(folder.incidents / HANG)
    times = {0: ("a", 0.0), 1: ("a", 0.25), 2: ("b", 5.0)}
    for name, numbers, step in (("a", (10, 11), 5), ("b", (12, 13, 14, 15), 7)):
        ranks = (
            a_seen_rank(rank, node, step, *(an_all_reduce(seq, seq + late) for seq in numbers))
            for rank, (node, late) in times.items()
        )
        stored.write_snapshot(name, a_snapshot(*ranks))
    a_log().agent().launch().ends().write(folder)
    with quietly():
        calls = open_job(folder.path).collectives()
    assert set(calls["look"]) == {"b"}
    late = calls.pivot_table(index="rank", columns="seq", values="lateness", dropna=False)
    assert list(late.loc[0]) == [0.0] * 4
    assert list(late.loc[1]) == [0.25] * 4
    assert calls[calls["rank"] == 2]["lateness"].isna().all()
    # Two steps and four calls from one look to the other.
    assert calls[calls["rank"] == 1]["step"].tolist() == [6, 6, 6, 7]
    assert set(calls["place"]) == {"all_reduce (torch/distributed/distributed_c10d.py:3245)"}
    assert set(calls["sizes"]) == {"[4, 1024] [8]"}


def test_the_share_in_communication_is_read_from_the_words_that_say_it() -> None:
    looks = {3: RankLooks(3, (), (True, True, True, False)), 4: RankLooks(4, (), ())}
    told = share_evidence({3: msgspec_like(looks[3])})
    assert communication_shares(told) == {3: 0.75}


def msgspec_like(looks: RankLooks) -> RankLooks:
    """Looks whose stacks do not matter here."""
    return RankLooks(looks.rank, (None,) * len(looks.inside), looks.inside)  # type: ignore[arg-type] # not looked at


def test_an_incident_whose_files_are_lost_is_what_its_events_say(folder: JobFolder) -> None:
    a_long_life().write(folder)
    a_job_file(folder)
    with quietly():
        job = open_job(folder.path)
    (row,) = records(job.incidents())
    assert (row["incident"], row["verdict"], row["summary"]) == (HANG, "RankNonCommHang", "rank 2 is stuck")
    assert (row["action"], row["is_stored"], row["culprits"], row["kind"]) == ("restart", False, [], None)
    assert job.ranks().empty
    assert any(HANG in text and "not among the stored ones" in text for text in job.warnings)


def test_a_suspicion_that_was_cleared_is_no_incident_and_its_threads_are_there(folder: JobFolder) -> None:
    a_job_file(folder)
    stored = IncidentFolder(folder.incidents / HANG)
    stored.write_snapshot("a", a_snapshot(a_seen_rank(0, "vm", 5)))
    log = a_log().agent().launch()
    log.event("suspected", {"reason": "quiet"}, subject=HANG).event("cleared", {}, subject=HANG).write(folder)
    with quietly():
        job = open_job(folder.path)
    assert job.incidents().empty
    assert list(job.threads()["incident"]) == [HANG]
    assert {"suspected", "cleared"} <= set(job.events()["type"])


def test_faults_name_the_restart_that_followed(folder: JobFolder) -> None:
    a_long_life().fails(3, "ValueError: y").ends(1, "failed").write(folder)
    a_job_file(folder, ended=5000, result="failed")
    with quietly():
        faults = open_job(folder.path).faults()
    assert [(row["rank"], row["restarts"], row["is_root"]) for row in records(faults)] == [
        (1, 1, False),
        (2, 1, True),
        (3, None, True),
    ]


def test_a_run_id_used_again_has_its_last_job_and_all_of_them_when_asked(folder: JobFolder) -> None:
    a_log().agent().launch().ends(1, "failed").agent().launch().ends().write(folder)
    a_job_file(folder, created=6, ended=9, result="succeeded")
    last, every = open_job(folder.path), open_job(folder.path, earlier=True)
    assert (len(last.cycles()), len(every.cycles())) == (1, 2)
    assert (last.job.earlier, every.job.earlier) == (1, 0)
    assert (len(last.events()), len(every.events())) == (3, 6)


def test_events_are_in_the_order_of_their_lines_with_what_they_carry(folder: JobFolder) -> None:
    a_log().agent().launch().event("message", {"rank": 1, "content": "ü"}).ends().write(folder)
    a_job_file(folder, ended=9, result="succeeded")
    rows = records(open_job(folder.path).events())
    assert [row["type"] for row in rows] == ["job.started", "cycle.started", "message", "job.ended"]
    assert [row["sequence"] for row in rows] == [1, 2, 3, 4]
    assert (rows[2]["rank"], rows[2]["text"]) == (1, "rank 1: ü")
    assert json.loads(rows[2]["data"]) == {"rank": 1, "content": "ü"}
    assert rows[1]["clock"] - rows[0]["clock"] == 3.0


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("job.json", "newer version"),
        ("diagnosis.json", "newer version"),
        ("snapshot-b.json.zst", "newer version"),
    ],
)
def test_files_of_a_newer_version_load_and_that_is_said(tmp_path: Path, file: str, words: str) -> None:
    job = a_copy(tmp_path)
    (path,) = job.rglob(file)
    if path.suffix == ".zst":
        (incident,) = (job / "incidents").iterdir()
        look = IncidentFolder(incident).snapshot("b")
        assert look is not None
        IncidentFolder(incident).write_snapshot("b", msgspec.structs.replace(look, schema=9))
    else:
        rewritten(path, schema=9, invented=[1, 2])
    with quietly():
        tables = open_job(job)
        found = frames(tables)
    assert any(words in text for text in tables.warnings), tables.warnings
    before = frames(open_job(the_recorded_job()))
    assert all(found[name].equals(before[name]) for name in ALL)


def test_a_diagnosis_with_a_word_that_is_not_known_is_what_its_events_say(tmp_path: Path) -> None:
    job = a_copy(tmp_path)
    (path,) = job.rglob("diagnosis.json")
    rewritten(path, verdict="RankBored")
    with quietly():
        tables = open_job(job)
        (row,) = records(tables.incidents())
    assert not row["is_stored"]
    assert row["verdict"] == "RankNonCommHang"
    assert any("diagnosis.json" in text for text in tables.warnings)
    assert len(tables.threads()) == len(open_job(the_recorded_job()).threads())


def test_what_is_missing_is_one_python_warning_at_the_callers_line(folder: JobFolder) -> None:
    a_long_life().write(folder)
    with pytest.warns(IncompleteRecords) as caught:
        open_job(folder.path)
    (one,) = caught
    assert one.filename == __file__
    assert "job.json" in str(one.message)
    assert "more, see .warnings" in str(one.message)


def test_a_snapshot_that_cannot_be_read_is_said_when_its_table_is_asked_for(tmp_path: Path) -> None:
    job = a_copy(tmp_path)
    (path,) = job.rglob("snapshot-b.json.zst")
    path.write_bytes(path.read_bytes()[:100])
    tables = open_job(job)
    assert tables.warnings == []
    with pytest.warns(IncompleteRecords, match="snapshot-b") as caught:
        threads = tables.threads()
    assert caught[0].filename == __file__
    assert set(threads["look"]) == {"a"}
    assert len(tables.warnings) == 1
    with quietly():
        assert not tables.collectives().empty
    assert len(tables.warnings) == 1


def test_a_log_that_ends_before_its_job_did_is_said(tmp_path: Path) -> None:
    job = a_copy(tmp_path)
    (log,) = job.rglob("events.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:4]))
    with quietly():
        tables = open_job(job)
    assert any("cut short" in text for text in tables.warnings)


@pytest.mark.parametrize(
    "value", ["\udcff", "9" * 300, "a\0b", "=cmd", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00Z", "soon", ""]
)
def test_odd_texts_and_times_are_no_error(folder: JobFolder, value: str) -> None:
    a_log().agent().launch().event("message", {"rank": 1 << 70}).write(folder)
    a_job_file(folder)
    path = folder.node("vm") / "events.jsonl"
    lines = path.read_bytes().splitlines()
    last = {**json.loads(lines[-1]), "time": value, "source": value, "data": {"content": value}}
    path.write_bytes(b"\n".join([*lines[:-1], json.dumps(last).encode()]))
    rewritten(folder.job_file, created=value.encode("utf-8", "replace").decode(), result="x")
    with quietly():
        for name, frame in frames(open_job(folder.path)).items():
            assert shapes(frame) == declared(next(one for one in OF_A_JOB if one.name == name))


def test_numbers_beyond_64_bits_are_the_nearest_ones(folder: JobFolder) -> None:
    a_job_file(folder)
    stored = IncidentFolder(folder.incidents / HANG)
    stored.write_snapshot("a", a_snapshot(a_seen_rank(0, "vm", 5)))
    path = folder.incidents / HANG / "snapshot-a.json.zst"
    text = (
        zstandard.ZstdDecompressor()
        .decompress(path.read_bytes())
        .replace(b'"step":5', b'"step":%d' % (1 << 70))
    )
    path.write_bytes(zstandard.compress(text))
    with quietly():
        steps = open_job(folder.path).steps()
    assert list(steps["step"]) in ([2**63 - 1], [])


def test_a_stack_whose_ranks_are_damaged_is_shown_and_said(tmp_path: Path) -> None:
    job = a_copy(tmp_path)
    (path,) = job.rglob("diagnosis.json")
    stacks = msgspec.json.decode(path.read_bytes())["stacks"]
    rewritten(path, stacks=[{**stacks[0], "ranks": "2,1"}, *stacks[1:]])
    with pytest.warns(IncompleteRecords, match="ranks of a stack are damaged"):
        tables = open_job(job)
    first, second = records(tables.stacks())[:2]
    assert (first["ranks"], first["rank_list"], first["is_compared"]) == ("2,1", [], True)
    assert (second["rank_list"], second["is_compared"]) == ([0, 1, 3], True)
    with quietly():
        assert list(open_jobs(tmp_path).jobs()["verdict"]) == ["RankNonCommHang"]


def test_who_is_slow_since_when_is_the_diagnosis_and_the_pace_is_the_events(folder: JobFolder) -> None:
    a_job_file(folder)
    an_incident(folder, HANG)
    rewritten(folder.incidents / HANG / "diagnosis.json", since_step=97)
    told = {"since_step": 41, "pace_since_step": 40, "step_seconds": 0.5, "usual_step_seconds": 0.2}
    log = a_log().agent().launch().event("slow", told, subject=HANG)
    log.event("slow", {"verdict": "RankNonCommSlow", "since_step": 7}, subject="lost").write(folder)
    with quietly():
        stored, lost = records(open_job(folder.path).incidents())
    assert (stored["since_step"], stored["pace_since_step"]) == (97, 40)
    assert (lost["since_step"], lost["pace_since_step"], lost["is_stored"]) == (7, None, False)


def test_a_table_that_there_is_not_is_one_clear_error(real: Any) -> None:
    with pytest.raises(UsageError, match="no such table: 'nope' \\(there are incidents, ranks, "):
        real.frame("nope")
    with pytest.raises(UsageError, match="'jobs'"):
        real.frame("jobs")


def test_frames_that_are_none_are_left_out_and_said(tmp_path: Path) -> None:
    job = a_copy(tmp_path)
    (path,) = job.rglob("snapshot-b.json.zst")
    look = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(path.read_bytes()))
    look["ranks"][2]["threads"][0]["frames"] = [7]
    path.write_bytes(zstandard.compress(msgspec.json.encode(look)))
    tables = open_job(job)
    with pytest.warns(IncompleteRecords, match="frames cannot be read"):
        threads = tables.threads()
    assert set(threads.loc[threads["look"] == "b", "rank"]) == {0, 1}
    assert set(threads.loc[threads["look"] == "a", "rank"]) == {0, 1, 2, 3}


@pytest.mark.parametrize("last", ["message", "notice.failed"])
def test_an_agents_last_word_is_its_end_whatever_came_behind_it(folder: JobFolder, last: str) -> None:
    a_job_file(folder, ended=9, result="succeeded")
    a_log().agent().launch().ends().event(last, {"content": "late"}).write(folder)
    assert open_job(folder.path).warnings == []
    a_log().agent().launch().event(last, {"content": "late"}).write(folder)
    with pytest.warns(IncompleteRecords, match="the last word of this node's agent is missing"):
        open_job(folder.path)


def test_a_job_in_a_folder_of_any_name_is_called_as_diag_history_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = tmp_path / "from the cluster"
    shutil.copytree(a_copy(tmp_path), copied)
    (told,) = said(history, str(copied), capsys=capsys)
    assert open_job(copied).job.job == told["job"] == "run-7"


def test_thousands_of_rows_keep_their_order_and_their_jobs() -> None:
    table = OF_JOBS["spent"]
    columns = Columns(table)
    for job in range(3):
        columns.add(((str(at), "training", float(at)) for at in range(5000 * job)), f"run-{job}")
    frame = frame_of(table, columns.values())
    assert list(frame["job"]) == ["run-1"] * 5000 + ["run-2"] * 10_000
    assert list(frame["seconds"]) == [*map(float, range(5000)), *map(float, range(10_000))]


@pytest.mark.parametrize(
    "odd",
    [None, "2026-11-30", "2026-11-30T10:00:00", "2026-11-30T10:00:00+05:30", "9999-12-31T00:00:00Z", "soon"],
)
def test_times_are_the_same_with_and_without_pyarrow(
    monkeypatch: pytest.MonkeyPatch, odd: str | None
) -> None:
    table, columns = Table("x", "", "", (moment("began", ""),)), [["2026-11-30T10:00:00.123Z", odd, None]]
    with_it = frame_of(table, columns)["began"]
    monkeypatch.setattr("rankscope.diag.tables.frames._IN_ARROW", False)
    assert with_it.equals(frame_of(table, columns)["began"])
    assert list(with_it.isna()) == [False, odd in (None, "9999-12-31T00:00:00Z", "soon"), True]


# ---------------------------------------------------------------- many jobs


def test_many_jobs_are_the_tables_of_each_with_its_name(tmp_path: Path) -> None:
    for name in ("run-a", "run-b"):
        a_copy(tmp_path, name)
    fleet = open_jobs(tmp_path)
    assert fleet.warnings == []
    for name, table in OF_JOBS.items():
        assert shapes(fleet.frame(name)) == declared(table)
    for name, frame in frames(open_job(tmp_path / "jobs" / "run-a")).items():
        every = fleet.frame(name)
        own = every[every["job"] == "run-a"].drop(columns="job").reset_index(drop=True)
        assert own.equals(frame), name
    jobs = fleet.jobs()
    assert list(jobs["job"]) == ["run-a", "run-b"]
    assert list(jobs["state"]) == ["ended", "ended"]
    assert list(jobs["verdict"]) == ["RankNonCommHang"] * 2


def test_two_folders_of_one_run_id_are_two_jobs(tmp_path: Path) -> None:
    shutil.copytree(a_copy(tmp_path), tmp_path / "jobs" / "run-7~2")
    jobs = open_jobs(tmp_path).jobs()
    assert list(jobs["job"]) == ["run-7", "run-7~2"]
    assert open_job(tmp_path / "jobs" / "run-7~2").job.job == "run-7~2"


def test_a_broken_job_is_a_row_with_warnings_and_costs_nobody_elses(tmp_path: Path) -> None:
    a_copy(tmp_path, "run-a")
    broken = a_copy(tmp_path, "run-b")
    for path in broken.rglob("*.json*"):
        path.write_bytes(b"{")
    (tmp_path / "jobs" / "run-c").mkdir()
    with pytest.warns(IncompleteRecords, match="run-b"):
        fleet = open_jobs(tmp_path)
    rows = {row["job"]: row for row in records(fleet.jobs())}
    assert [rows[name]["state"] for name in ("run-a", "run-b", "run-c")] == ["ended", "damaged", "damaged"]
    assert rows["run-a"]["warnings"] == 0
    assert rows["run-b"]["warnings"] > 0
    assert set(fleet.incidents()["job"]) == {"run-a"}
    assert all(text.startswith(("run-b: ", "run-c: ")) for text in fleet.warnings)


def test_a_root_without_jobs_is_empty_tables_and_one_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.warns(IncompleteRecords, match="no job has been recorded yet"):
        fleet = open_jobs(tmp_path)
    assert shapes(fleet.jobs()) == declared(OF_JOBS["jobs"])
    with pytest.raises(UsageError, match="no such folder"):
        open_jobs(tmp_path / "nowhere")


# ---------------------------------------------------------------- what a name means


def test_a_job_is_found_by_its_run_id_its_beginning_and_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_copy(tmp_path, "run-abc")
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert {open_job(name).job.folder for name in ("run-abc", "run-a", job, str(job))} == {str(job)}
    with pytest.raises(UsageError, match="no such job"):
        open_job("run-x")
    with pytest.raises(UsageError, match="no such job"):
        open_job(tmp_path / "run-x")
    with pytest.raises(UsageError):
        open_job("")


def test_an_incidents_folder_is_that_incident_alone(real: Any) -> None:
    (incident,) = (the_recorded_job() / "incidents").iterdir()
    with pytest.warns(IncompleteRecords, match="no job folder"):
        alone = open_job(incident)
    for name in ("ranks", "stacks", "evidence", "threads", "steps", "groups", "collectives"):
        assert alone.frame(name).equals(real.frame(name)), name
    assert list(alone.incidents()["action"]) == ["restart"]
    assert alone.events().empty


def test_dumps_are_judged_as_analyze_judges_them(capsys: pytest.CaptureFixture[str]) -> None:
    dumps = Path(__file__).parents[1] / "data" / "tools" / "lock_blocked"
    (told,) = said(analyze, str(dumps), capsys=capsys)
    with quietly():
        tables = open_job(dumps)
    (row,) = records(tables.incidents())
    assert (row["verdict"], row["culprits"], row["summary"]) == (
        told["verdict"],
        told["culprits"],
        told["summary"],
    )
    assert [one["state"] for one in records(tables.ranks())] == [one["state"] for one in told["ranks"]]
    assert not tables.threads().empty
    assert tables.job.state is None


def test_nothing_heavy_is_imported_before_a_job_is_opened() -> None:
    code = (
        "import sys; from rankscope.diag import RankscopeError, analyze, open_job;"
        "print([one for one in ('pandas', 'numpy', 'pyarrow', 'msgspec', 'torch') if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_times_are_of_the_records(folder: JobFolder) -> None:
    a_log().agent().launch().ends().write(folder)
    a_job_file(folder, ended=9, result="succeeded")
    assert open_job(folder.path).cycles()["began"].iloc[0] == pd.Timestamp(BEGAN + 1000, unit="s", tz="UTC")
