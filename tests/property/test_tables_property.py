"""Whatever of a job's files is cut off: its tables load, with the same rows or with a warning."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables_factory import a_copy, frames, quietly

from rankscope.diag import open_job, open_jobs

SHARES = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.fixture(scope="module")
def whole() -> Generator[tuple[Path, dict[str, pd.DataFrame], dict[str, object]]]:
    """A real job, all its tables, and what is known of it."""
    with tempfile.TemporaryDirectory() as folder:
        job = a_copy(Path(folder))
        tables = open_job(job)
        assert tables.warnings == []
        yield job, frames(tables), known(tables.job)


def known(job: object) -> dict[str, object]:
    """What the job's row says, without what no file of it says."""
    return {
        name: getattr(job, name)
        for name in ("job", "state", "result", "started", "ended", "restarts", "verdict")
    }


def files_of(job: Path) -> list[Path]:
    return sorted(path.relative_to(job) for path in job.rglob("*") if path.is_file())


@settings(max_examples=25)
@given(which=st.integers(min_value=0), share=SHARES)
def test_any_file_cut_off_anywhere_gives_the_same_rows_or_a_warning(
    whole: tuple[Path, dict[str, pd.DataFrame], dict[str, object]], which: int, share: float
) -> None:
    job, before, job_before = whole
    files = files_of(job)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "jobs" / job.name
        shutil.copytree(job, copy)
        path = copy / files[which % len(files)]
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        with quietly():
            tables = open_job(copy)
            found = frames(tables)
        if not tables.warnings:
            for name, frame in found.items():
                assert frame.equals(before[name]), (path, name)
            assert known(tables.job) == job_before


@settings(max_examples=25)
@given(missing=st.sets(st.integers(min_value=0, max_value=6)))
def test_any_files_missing_leave_a_job_that_loads_and_its_neighbour_as_it_is(
    whole: tuple[Path, dict[str, pd.DataFrame], dict[str, object]], missing: set[int]
) -> None:
    job, before, _ = whole
    files = files_of(job)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("run-7", "run-8"):
            shutil.copytree(job, Path(folder) / "jobs" / name)
        for which in missing:
            (Path(folder) / "jobs" / "run-8" / files[which % len(files)]).unlink(missing_ok=True)
        with quietly():
            fleet = open_jobs(folder)
            for name, frame in before.items():
                every = fleet.frame(name)
                own = every[every["job"] == "run-7"].drop(columns="job").reset_index(drop=True)
                assert own.equals(frame), name
        assert all(text.startswith("run-8: ") or "run-8" in text for text in fleet.warnings)
