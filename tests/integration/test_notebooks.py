"""The notebooks, run on recorded jobs: their figures are those of ``--json``, and what is committed is a run.

One of the jobs is recorded while the test runs, so that the recordings cannot become a world of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from nbformat import NotebookNode
from tests.history_factory import a_job_file, a_log, an_incident
from tests.notebooks.execute import FIGURE, FOLDER, NAMES, environment, executed, read
from tests.notebooks.pictures import PICTURE, figures, is_pictured
from tests.recordings.plan import BY_NAME
from tests.recordings.run import run_recording
from tests.recordings.store import RECORDED

from rankscope.diag.main import main
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import job_folder
from rankscope.diag.store.launches import STAGES

MOST_BYTES: Final = 300_000
JOBS: Final = RECORDED / "jobs"
SLOW: Final = ("RankCommSlow", "RankNonCommSlow")
_STREAM: Final = "stream"


@cache
def shown(name: str) -> NotebookNode:
    """A notebook with the outputs of a run on the job it is committed with."""
    return executed(name)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    for cell in code_cells(notebook):
        yield from cell["outputs"]


def text(notebook: NotebookNode) -> str:
    """All that it prints, and its tables."""
    parts = [
        output["text"] if output["output_type"] == _STREAM else output["data"].get("text/html", "")
        for output in outputs(notebook)
    ]
    return "\n".join(parts)


def essence(notebook: NotebookNode) -> list[list[object]]:
    """What a run gives, without pictures, which are drawn afterwards."""
    found: list[list[object]] = []
    for cell in code_cells(notebook):
        of_cell: list[object] = []
        for output in cell["outputs"]:
            if output["output_type"] == _STREAM:
                of_cell.append(output["text"])
            else:
                of_cell.append({kind: data for kind, data in output["data"].items() if kind != PICTURE})
        found.append(of_cell)
    return found


def titles(notebook: NotebookNode) -> list[str]:
    return [output["data"][FIGURE]["layout"]["title"]["text"] for output in figures(notebook)]


def figure_with(notebook: NotebookNode, words: str) -> dict[str, Any]:
    """The figure in whose title these words are."""
    (found,) = (
        output["data"][FIGURE]
        for output in figures(notebook)
        if words in output["data"][FIGURE]["layout"]["title"]["text"]
    )
    return dict(found)


def values(array: Any) -> list[Any]:
    """An array of a figure, as a list; plotly packs numbers."""
    if not isinstance(array, dict):
        return list(array or ())
    numbers = np.frombuffer(b64decode(array["bdata"]), dtype=array["dtype"])
    shape = [int(size) for size in str(array.get("shape", numbers.size)).split(",")]
    return list(numbers.reshape(shape).tolist())


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """What a verb prints with ``--json``, one object after the other."""
    main([*arguments, "--json"])
    rest, found, decoder = capsys.readouterr().out.strip(), list[dict[str, Any]](), json.JSONDecoder()
    while rest:
        one, end = decoder.raw_decode(rest)
        found.append(one)
        rest = rest[end:].lstrip()
    return found


def history(capsys: pytest.CaptureFixture[str], job: str) -> dict[str, Any]:
    (found,) = answered(capsys, "history", str(JOBS / job))
    return found


def incidents(capsys: pytest.CaptureFixture[str], job: str) -> list[dict[str, Any]]:
    if not any((JOBS / job).glob("incidents/*/diagnosis.json")):
        return []
    return answered(capsys, "analyze", str(JOBS / job), "--all")


def events(job: str) -> list[dict[str, Any]]:
    logs = [path.read_text() for path in (JOBS / job).glob("nodes/*/events.jsonl")]
    return [json.loads(line) for log in logs for line in log.splitlines()]


def children() -> str:
    return Path("/proc/thread-self/children").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_what_a_run_gives_with_a_picture_of_each_figure(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    committed = read(path)
    assert path.stat().st_size < MOST_BYTES
    assert essence(committed) == essence(shown(name)), "make notebooks writes them anew"
    assert all(is_pictured(output) for output in figures(committed)), "make notebooks draws the figures anew"
    assert len(titles(committed)) >= 2
    assert not children().split()


def test_the_hang_report_says_what_analyze_says(capsys: pytest.CaptureFixture[str]) -> None:
    (diagnosis,) = incidents(capsys, "loader-hang")
    report, place = text(shown("hang_report")), diagnosis["location"]
    assert f"{diagnosis['verdict']}, {diagnosis['kind']}, confidence {diagnosis['confidence']}" in report
    assert diagnosis["summary"] in report
    assert diagnosis["would_change"] in report
    assert f"{place['file']}:{place['line']} in {place['function']}\n      {place['source']}" in report
    assert f"on {', '.join(diagnosis['nodes'])}" in report
    for evidence in diagnosis["evidence"]:
        assert evidence["fact"] in report
    for group in diagnosis["stacks"][:2]:
        assert f"count {group['count']}  ranks {group['ranks']}\n    {group['stack'][0]}" in report
    waiting = [rank for rank in diagnosis["ranks"] if rank["waits_for"]]
    assert f"{len(waiting)} of {diagnosis['world_size']} ranks wait for rank 2" in titles(
        shown("hang_report")
    )


def test_the_hang_report_measures_time_as_the_history_does(capsys: pytest.CaptureFixture[str]) -> None:
    ended, after = history(capsys, "loader-hang")["cycles"]
    bars = figure_with(shown("hang_report"), "until it was noticed")["data"]
    lost = [ended[stage] for stage in ("hang_unnoticed", "collection", "analysis", "stopping")]
    back = [after[stage] for stage in ("rendezvous", "start", "first_step")]
    assert [values(bar["x"])[0] for bar in bars] == [seconds for seconds in (*lost, *back) if seconds]
    (restart,) = history(capsys, "loader-hang")["restarts"]
    line = f"running after {restart['record']['duration']:.3f} s, {restart['record']['lost']:.3f} s after"
    assert line in text(shown("hang_report"))


def test_the_straggler_report_says_who_and_since_when(capsys: pytest.CaptureFixture[str]) -> None:
    found = incidents(capsys, "straggler")
    report = text(shown("straggler_report"))
    for diagnosis in found:
        assert diagnosis["summary"] in report
    for told in (event["data"] for event in events("straggler") if event["type"] == "rankscope.slow"):
        if told["verdict"] in SLOW and "pace_since_step" in told:
            before = f"since step {told['pace_since_step']}, {told['usual_step_seconds']:.3f} s before"
            assert f"A step takes {told['step_seconds']:.3f} s {before}" in report
    for rank in (1, 2):
        first = next(one for one in found if one["culprits"] == [rank])
        assert f"since about step {first['since_step']}" in first["summary"]
        assert f"Rank {rank} slow since about step {first['since_step']}." in report


def test_the_heat_map_is_brightest_where_the_slow_rank_is_said_to_be() -> None:
    figure = figure_with(shown("straggler_report"), "came latest")
    (heat,) = figure["data"]
    steps, rows = values(heat["x"]), values(heat["z"])
    first, second = sorted(line["x0"] for line in figure["layout"]["shapes"])
    for begin, end, slow in ((first, second, "rank 1"), (second, max(steps), "rank 2")):
        late = Counter[str]()
        for rank, row in zip(heat["y"], rows, strict=True):
            inside = [value for step, value in zip(steps, row, strict=True) if begin <= step < end]
            late[rank] = round(sum(value or 0.0 for value in inside) / len(inside))
        assert late.most_common(1)[0][0] == slow
        assert late[slow] > 100


def test_the_shares_in_communication_are_those_of_the_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    told = Counter[tuple[str, int]]()
    for diagnosis in incidents(capsys, "straggler"):
        for one in diagnosis["evidence"]:
            share = re.match(r"in communication in (\d+) % of", one["fact"])
            if share is not None:
                told[str(one["rank"]), int(share[1])] += 1
    drawn = Counter[tuple[str, int]]()
    for trace in figure_with(shown("straggler_report"), "in communication least")["data"]:
        for ranks, share in zip(trace["text"], values(trace["x"]), strict=True):
            for rank in _unfolded(ranks):
                drawn[rank, round(share)] += 1
    assert told
    assert drawn == told


def _unfolded(ranks: str) -> Iterator[str]:
    for run in ranks.split(","):
        first, _, last = run.partition("-")
        yield from map(str, range(int(first), int(last or first) + 1))


def test_the_fleets_lost_time_adds_up_to_all_histories(capsys: pytest.CaptureFixture[str]) -> None:
    spent = Counter[str]()
    for job in BY_NAME:
        for one in history(capsys, job)["spent"]:
            spent[one["cause"]] += one["seconds"]
    report = text(shown("fleet_report"))
    total = sum(spent.values())
    for cause in ("training", "hang_unnoticed", "collection", "analysis"):
        assert cause in STAGES
        assert f"{spent[cause]:>12.3f} s {spent[cause] / total:>7.1%}" in report
    assert f"{total:>12.3f} s, lost of it: {total - spent['training']:.3f} s" in report
    drawn = figure_with(shown("fleet_report"), "was not training")["data"][0]["x"]
    assert sum(values(drawn)) == pytest.approx(total - spent["training"])


def test_the_fleets_incidents_are_those_of_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    classes, stopped, nodes = Counter[str](), 0, Counter[str]()
    wall = 0.0
    for job in BY_NAME:
        wall += history(capsys, job)["wall"]
        told = {event["subject"] for event in events(job) if event["type"] == "rankscope.slow"}
        recovered = {event["subject"] for event in events(job) if event["type"].endswith("recovered")}
        for one in incidents(capsys, job):
            if one["verdict"] in SLOW and one["incident"] not in told:
                continue
            classes[one["verdict"]] += 1
            nodes.update(one["nodes"] if one["incident"] not in recovered else ())
        decisions = [event["data"]["action"] for event in events(job) if event["type"].endswith("decision")]
        stopped += sum(action in {"restart", "isolate", "fail"} for action in decisions)
    fleet = shown("fleet_report")
    drawn = Counter[str]()
    for bar in figure_with(fleet, "are of the kind")["data"]:
        drawn[bar["name"]] = sum(values(bar["x"]))
    assert drawn == classes
    assert f"{stopped} failures in {wall:.3f} s: one every {wall / stopped:.1f} s" in text(fleet)
    by_node = Counter[str]()
    for bar in figure_with(fleet, "has to do with")["data"]:
        by_node.update(dict(zip(bar["y"], values(bar["x"]), strict=True)))
    assert by_node == nodes
    assert nodes.most_common(1)[0][0] == "node-b"


def test_the_fleets_false_alarms_are_its_events() -> None:
    ends = Counter(
        event["type"].removeprefix("rankscope.")
        for job in BY_NAME
        for event in events(job)
        if event["type"].endswith((".suspected", ".cleared"))
        or (event["type"].endswith(".recovered") and "seconds" in event["data"])  # of a hang, not of slowness
    )
    told = f"False alarms: {ends['incident.recovered']} of {ends['suspected']} suspicions"
    cleared = f"{ends['cleared']} more were cleared before anybody was told"
    assert any(told in one and cleared in one for one in titles(shown("fleet_report")))


@pytest.mark.parametrize(
    ("name", "job", "least"),
    [
        ("hang_report", "exit-hang", 2),
        ("hang_report", "crash", 3),
        ("hang_report", "healthy", 0),
        ("straggler_report", "loader-hang", 0),
    ],
)
def test_a_notebook_runs_on_a_job_it_was_not_made_for(
    name: str, job: str, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = executed(name, JOB=str(JOBS / job))
    check_figures(notebook)
    assert len(titles(notebook)) == least
    if name == "hang_report":
        for diagnosis in incidents(capsys, job):
            assert diagnosis["summary"] in text(notebook)


def test_a_rank_whose_stack_has_no_frames_is_in_the_icicle_too(tmp_path: Path) -> None:
    job = tmp_path / "loader-hang"
    shutil.copytree(JOBS / "loader-hang", job)
    (path,) = job.glob("incidents/*/diagnosis.json")
    diagnosis = json.loads(path.read_bytes())
    diagnosis["stacks"][0]["stack"] = []
    path.write_text(json.dumps(diagnosis))
    notebook = executed("hang_report", JOB=str(job))
    check_figures(notebook)
    assert figure_with(notebook, "1 of 4 ranks stand in no frame that is known")


def test_failures_of_an_earlier_job_of_a_run_id_are_not_those_of_the_last(tmp_path: Path) -> None:
    folder = job_folder("run-7", tmp_path)
    a_log().agent().launch().passes(200).ends(1, "failed").agent().launch().ends().write(folder)
    a_job_file(folder, created=204, ended=208, result="succeeded")
    an_incident(folder, "20270115T080000Z-0000001", at=1100)
    notebook = executed("fleet_report", JOBS=str(tmp_path))
    assert "No failure in 3.000 s of jobs" in text(notebook)


def test_the_fleet_report_of_no_jobs_is_sentences(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    notebook = executed("fleet_report", JOBS=str(tmp_path))
    assert titles(notebook) == []
    assert f"There are no jobs in {tmp_path}." in text(notebook)


def test_a_job_is_recorded_as_it_was_and_the_command_of_the_docs_shows_it(tmp_path: Path) -> None:
    cheap = replace(BY_NAME["killed"], flags=(), exit_code=1)  # without the launch after the restart
    records = run_recording(cheap, tmp_path / "killed", is_named=False)
    jupyter = str(Path(sys.executable).with_name("jupyter"))
    subprocess.run(
        [jupyter, "execute", f"--output={tmp_path / 'report'}", str(FOLDER / "hang_report.ipynb")],
        env={**environment(tmp_path / "own"), "JOB": str(records.path)},
        capture_output=True,
        check=True,
        timeout=150,
    )
    notebook = read(tmp_path / "report.ipynb")
    check_figures(notebook)
    (incident,) = records.incidents.iterdir()
    assert IncidentFolder(incident).diagnosis().summary in text(notebook)
    assert "not observed: rank 0: the process has ended" in text(notebook)


def check_figures(notebook: NotebookNode) -> None:
    """Nothing on stderr, no figure is empty, each cell that shows something shows it or says why not."""
    assert [output for output in outputs(notebook) if output.get("name") == "stderr"] == []
    for output in figures(notebook):
        figure = output["data"][FIGURE]
        assert any(_has_values(trace) for trace in figure["data"])
    silent = [cell["source"] for cell in code_cells(notebook)[1:] if not cell["outputs"]]
    assert silent == []


def _has_values(trace: dict[str, Any]) -> bool:
    return any(values(trace.get(name)) for name in ("x", "z", "values"))
