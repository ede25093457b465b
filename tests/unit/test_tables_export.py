"""``diag export`` and ``export()``: a dataset that others read, replaced job by job, never half of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped] # it ships no types
import pyarrow.dataset as ds  # type: ignore[import-untyped] # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped] # it ships no types
import pytest
from tests.history_factory import a_job_file, a_log
from tests.tables_factory import ALL, a_copy, frames, quietly

from rankscope.diag import open_job, open_jobs
from rankscope.diag.commands.export import main
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.store.job import JobFolder, job_folder
from rankscope.diag.tables.declared import OF_JOBS
from rankscope.diag.tables.parquet import schema_of

HIVE = ds.partitioning(pa.schema([("job", pa.string()), ("date", pa.date32())]), flavor="hive")


def read(folder: Path, table: str) -> pd.DataFrame:
    frame = ds.dataset(folder / table, partitioning=HIVE).to_table().to_pandas()
    assert isinstance(frame, pd.DataFrame)
    return frame


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(written: pd.DataFrame, frame: pd.DataFrame) -> bool:
    """Whether a frame comes back; lists come back as arrays."""
    back = written.drop(columns=["job", "date"])
    for name in frame.select_dtypes("object").columns:
        back[name] = [tuple(value) for value in back[name]]
    return list(back.columns) == list(frame.columns) and back.equals(frame)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    a_copy(home, "run-a")
    monkeypatch.setenv("RANKSCOPE_HOME", str(home))
    return home


def test_a_dataset_read_by_pyarrow_is_the_frames_with_job_and_date(store: Path, tmp_path: Path) -> None:
    job = open_job("run-a")
    job.export(tmp_path / "out", "parquet")
    for name, frame in frames(job).items():
        if frame.empty:
            assert not (tmp_path / "out" / name).exists()
            continue
        written = read(tmp_path / "out", name)
        assert same(written, frame), name
        assert set(written["job"]) == {"run-a"}
        assert set(map(str, written["date"])) == {"2026-11-30"}
    assert read(tmp_path / "out", "jobs")["verdict"].tolist() == ["RankNonCommHang"]


def test_files_have_the_declared_types_and_neither_job_nor_date(store: Path, tmp_path: Path) -> None:
    open_job("run-a").export(tmp_path / "out")
    for name in ("incidents", "collectives", "cycles"):
        (path,) = (tmp_path / "out" / name).rglob("*.parquet")
        schema = pq.ParquetFile(path).schema_arrow
        wanted = schema_of(OF_JOBS[name])
        assert [(one.name, one.type) for one in schema] == [(one.name, one.type) for one in wanted][1:]
        assert schema.metadata[b"rankscope.schema"] == b"1"


def test_the_layout_is_table_job_and_date_and_nothing_else(store: Path, tmp_path: Path) -> None:
    written = open_job("run-a").export(tmp_path / "out")
    files = set(all_files(tmp_path / "out"))
    assert "incidents/job=run-a/date=2026-11-30/part-0.parquet" in files
    assert files == {name for one in written for name in one.files}
    assert {one.table for one in written} == {"jobs", *ALL}


def test_a_fleet_is_written_as_its_jobs_one_by_one_are(store: Path, tmp_path: Path) -> None:
    a_copy(store, "run-b")
    for name in ("run-a", "run-b"):
        open_job(name).export(tmp_path / "one by one")
    open_jobs(store).export(tmp_path / "at once")
    assert all_files(tmp_path / "one by one") == all_files(tmp_path / "at once")


def test_rows_of_two_days_are_two_partitions_and_going_back_to_one_removes_the_other(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "run-7")
    a_job_file(folder, ended=90_000, result="succeeded")
    log = a_log().agent().launch().passes(80_000).ends()
    log.write(folder)
    out = tmp_path / "out"
    open_job(folder.path).export(out)
    days = sorted(path.name for path in (out / "events" / "job=run-7").iterdir())
    assert days == ["date=2027-01-15", "date=2027-01-16"]
    assert len(read(out, "events")) == 3
    (out / "events" / "job=run-7" / "date=2027-01-16" / "theirs.txt").write_text("kept")
    log.events = log.events[:2]
    log.write(folder)
    with quietly():
        open_job(folder.path).export(out)
    assert len(list((out / "events").rglob("*.parquet"))) == 1
    assert (out / "events" / "job=run-7" / "date=2027-01-16" / "theirs.txt").exists()


def test_a_table_that_has_no_rows_any_more_has_no_file_any_more(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    open_job("run-a").export(out)
    for path in (store / "jobs" / "run-a" / "incidents").rglob("*"):
        if path.is_file():
            path.unlink()
    with quietly():
        open_job("run-a").export(out)
    assert not (out / "threads" / "job=run-a").exists()
    assert (out / "cycles" / "job=run-a").exists()


def test_another_jobs_files_stay(store: Path, tmp_path: Path) -> None:
    a_copy(store, "run-b")
    open_job("run-a").export(tmp_path / "out")
    before = all_files(tmp_path / "out")
    open_job("run-b").export(tmp_path / "out")
    assert before.items() < all_files(tmp_path / "out").items()


@pytest.mark.parametrize("name", ["7", "a=b", "ü ß", "x" * 250, "run/../7", "100%"])
def test_any_run_id_can_be_a_partition_and_is_read_back(tmp_path: Path, name: str) -> None:
    folder = job_folder(name, tmp_path)
    a_log().agent().launch().ends().write(folder)
    a_job_file(folder, ended=9, result="succeeded")
    open_job(folder.path).export(tmp_path / "out")
    found = set(read(tmp_path / "out", "cycles")["job"])
    assert len(found) == 1
    assert found == {name} or len(name) > 200
    assert all(len(path.name.encode()) < 256 for path in (tmp_path / "out").rglob("*"))


def test_a_write_that_fails_leaves_the_file_that_was_there_and_none_beside_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    open_job("run-a").export(out)
    before = all_files(out)

    def torn(_table: object, where: Path) -> None:
        where.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", torn)
    with pytest.raises(StoreError, match="No space left on device"):
        open_job("run-a").export(out)
    assert all_files(out) == before


def test_a_killed_export_leaves_nothing_that_readers_take_for_data(store: Path, tmp_path: Path) -> None:
    open_job("run-a").export(tmp_path / "out")
    (path,) = (tmp_path / "out" / "incidents").rglob("*.parquet")
    path.with_name(".part-0.parquet.4242").write_bytes(b"PAR1")
    assert len(read(tmp_path / "out", "incidents")) == 1


def test_a_format_that_is_not_known_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'csv'"):
        open_job("run-a").export(tmp_path / "out", "csv")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.parametrize("place", [".", "jobs", "jobs/new", "jobs/run-a/nodes"])
def test_nothing_is_exported_among_the_stored_jobs(store: Path, place: str) -> None:
    before = all_files(store)
    for tables in (open_job("run-a"), open_jobs()):
        with pytest.raises(UsageError, match=r"has (the stored jobs|the records of a job); name"):
            tables.export(store / place)
    assert all_files(store) == before


@pytest.mark.usefixtures("without_pyarrow")
def test_without_pyarrow_one_line_says_what_to_install(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        main(["run-a", "-o", str(tmp_path / "out")])
    assert caught.value.hint == "pip install 'rankscope[report]'"
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- the verb


def test_the_verb_says_what_it_wrote(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["run-a", "-o", str(out)]) == 0
    said = capsys.readouterr()
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in out.rglob("*.parquet"))
    assert said.out == f"1 job, {rows:,} rows: {out}\n"
    assert said.err == ""


def test_all_jobs_are_one_json_line_each(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_copy(store, "run-b")
    (store / "jobs" / "run-b" / "job.json").write_bytes(b"{")
    assert main(["--all", "--json", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    told: list[dict[str, Any]] = [json.loads(line) for line in said.out.splitlines()]
    assert [one["job"] for one in told] == ["run-a", "run-b"]
    assert told[0]["tables"]["incidents"] == {
        "rows": 1,
        "files": ["incidents/job=run-a/date=2026-11-30/part-0.parquet"],
    }
    assert told[0]["warnings"] == []
    assert "job.json" in told[1]["warnings"][0]
    assert said.err.startswith("diag export: run-b: ")
    assert set(read(tmp_path / "out", "incidents")["job"]) == {"run-a", "run-b"}


@pytest.mark.parametrize(
    "words",
    [
        lambda out: ["-o", out],
        lambda out: ["run-a", "--all", "-o", out],
        lambda out: ["run-a"],
        lambda out: ["run-x", "-o", out],
        lambda out: ["run-a", "-o", __file__],
        lambda out: ["", "-o", out],
        lambda out: ["run-a", "-o", ""],
    ],
)
def test_a_wrong_command_line_is_one_error_and_nothing_is_written(
    store: Path, tmp_path: Path, words: Callable[[str], list[str]]
) -> None:
    with pytest.raises(UsageError):
        main(words(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_error(store: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "jobs").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"):
        main(["run-a", "-o", str(tmp_path / "out")])
