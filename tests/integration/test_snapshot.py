"""``diag snapshot`` on real jobs, and ``diag analyze`` on what it wrote on all hosts."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.capture_factory import waiting_process
from tests.hung_job import PROGRAM, STUCK, STUCK_LINE, HungJob, hung_job
from tests.jobs import until

from rankscope.diag.model import JobSnapshot
from rankscope.diag.store.files import read_json

RANKS = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Generator[HungJob]:
    with hung_job(tmp_path_factory.mktemp("snapshot"), ranks=RANKS) as running:
        yield running


def snapshot(job: HungJob, into: Path, *arguments: str) -> dict[str, Any]:
    done = job.diag("snapshot", "-o", str(into), "--interval=0.5", "--json", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    written: dict[str, Any] = json.loads(done.stdout)
    return written


def pids(job: HungJob, *ranks: int) -> str:
    return ",".join(str(job.pids[rank]) for rank in ranks)


def told(diagnosis: dict[str, Any]) -> dict[str, Any]:
    """What a diagnosis says, without times and figures of the moment."""
    return {
        name: diagnosis[name]
        for name in (
            "job",
            "world_size",
            "observed",
            "verdict",
            "kind",
            "severity",
            "culprits",
            "summary",
            "location",
        )
    }


def test_the_folders_of_two_hosts_give_the_verdict_of_the_whole_job(job: HungJob, tmp_path: Path) -> None:
    page = tmp_path / "live.html"
    code, whole = job.analyze_json("--pid", str(job.pid), "--html", str(page))
    assert (code, whole["verdict"], whole["culprits"]) == (3, "RankNonCommHang", [STUCK])
    assert whole["summary"] in page.read_text()

    halves = [
        snapshot(job, tmp_path / name, "--pid", pids(job, *ranks))
        for name, ranks in {"a": (0, 1), "b": (2, 3)}.items()
    ]
    assert [half["observed"] for half in halves] == ["0-1", "2-3"]
    again, joined = job.analyze_json(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (again, told(joined)) == (code, told(whole))
    assert joined["location"]["line"] == STUCK_LINE

    one, half = job.analyze_json(str(tmp_path / "a"))
    assert half["culprits"] == []
    assert [absent["rank"] for absent in half["unobserved"]] == [2, 3]
    assert one == 5


def test_a_snapshot_explains_itself_where_the_source_is_not(job: HungJob, tmp_path: Path) -> None:
    written = snapshot(job, tmp_path, job.run_id)
    second = read_json(Path(written["path"]) / "snapshot-b.json.zst", JobSnapshot)
    frames = [frame for thread in second.ranks[STUCK].threads for frame in thread.frames]
    assert {frame.source for frame in frames if frame.file == str(PROGRAM)} >= {"return pipe.read_bytes()"}
    assert all(not frame.source for frame in frames if "site-packages" in frame.file)

    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / Path(written["path"]).relative_to(tmp_path).parts[0], moved)
    for file in moved.rglob("*.zst"):
        _rename_source(file)
    _, diagnosis = job.analyze_json(str(moved))
    assert diagnosis["location"]["source"] == "return pipe.read_bytes()"


def _rename_source(file: Path) -> None:
    """As on another machine, where the program's file does not exist."""
    plain = zstandard.ZstdDecompressor().decompress(file.read_bytes())
    assert str(PROGRAM).encode() in plain
    file.write_bytes(zstandard.compress(plain.replace(str(PROGRAM).encode(), b"/elsewhere/program.py")))


def test_hosts_and_runs_share_a_folder_without_losing_anything(job: HungJob, tmp_path: Path) -> None:
    paths = [
        snapshot(job, tmp_path, "--pid", pids(job, *ranks))["path"] for ranks in ((0, 1), (2, 3), (0, 1))
    ]
    assert len(set(paths)) == 3
    (host,) = tmp_path.iterdir()
    assert sorted(str(path) for path in host.iterdir()) == sorted(paths)
    assert all(
        sorted(file.name for file in Path(path).iterdir()) == ["snapshot-a.json.zst", "snapshot-b.json.zst"]
        for path in paths
    )
    done = job.diag("analyze", str(tmp_path))
    assert done.returncode == 3
    assert f"rank {STUCK} is stuck in load_batch".encode() in done.stdout
    assert b"1 older snapshot(s) of the same ranks left out" in done.stderr


def test_cpp_frames_and_local_variables_are_stored_when_asked_for(job: HungJob, tmp_path: Path) -> None:
    found: dict[str, tuple[bool, bool]] = {}
    for flags in ("", "--native --locals"):
        path = snapshot(job, tmp_path, "--pid", pids(job, STUCK), *flags.split())["path"]
        first = read_json(Path(path) / "snapshot-a.json.zst", JobSnapshot)
        threads = next(rank for rank in first.ranks if rank.rank == STUCK).threads
        kinds = {frame.kind for thread in threads for frame in thread.frames}
        found[flags] = ("native" in kinds, any(thread.variables for thread in threads))
    assert found == {"": (False, False), "--native --locals": (True, True)}


def test_one_line_a_job_says_what_was_written(job: HungJob, tmp_path: Path) -> None:
    done = job.diag("snapshot", "-o", str(tmp_path), "--interval=0.2", "--pid", pids(job, 0, 3))
    assert done.stderr == b""
    (line,) = done.stdout.decode().splitlines()
    path, _, rest = line.partition("  ")
    assert Path(path).is_dir()
    assert rest == f"job {job.run_id} of {RANKS}: stacks of ranks 0,3"


@pytest.mark.parametrize("jobs", ["one", "two"])
def test_what_was_seen_before_ctrl_c_is_stored_and_can_be_explained(
    job: HungJob, tmp_path: Path, jobs: str
) -> None:
    command = [sys.executable, "-c", "import sys; from rankscope.diag.main import main; sys.exit(main())"]
    with contextlib.ExitStack() as stack:
        other = [str(stack.enter_context(waiting_process(env=OTHER_JOB)).pid)] if jobs == "two" else []
        pids = ",".join([str(job.pid), *other])
        arguments = ["snapshot", "-o", str(tmp_path), "--pid", pids, "--interval=600"]
        _interrupt([*command, *arguments], tmp_path, looks=1 + len(other))
    diagnoses = job.diag("analyze", "--json", str(tmp_path)).stdout.decode()
    found = [each for each in _documents(diagnoses) if each["job"] == job.run_id]
    assert [(each["culprits"], each["observed"]) for each in found] == [([STUCK], "0-3")]


OTHER_JOB = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "other-job"}


def _interrupt(command: list[str], folder: Path, *, looks: int) -> None:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: len(list(folder.glob("*/*/snapshot-a.json.zst"))) == looks, "the first looks")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20.0) == (b"", b"")
        assert process.returncode == 130
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _documents(text: str) -> list[dict[str, Any]]:
    """JSON objects that follow each other."""
    found: list[dict[str, Any]] = []
    while text := text.strip():
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_an_incidents_folder_alone_shows_what_was_found_then(job: HungJob, tmp_path: Path) -> None:
    written = snapshot(job, tmp_path / "taken", "--pid", str(job.pid))
    folder = shutil.copytree(written["path"], tmp_path / "20261129T164000Z-3f9c")
    _, diagnosis = job.analyze_json(str(folder))
    found_then = {**diagnosis, "summary": "rank 2 was stuck for an hour", "confidence": "high"}
    (folder / "diagnosis.json").write_text(json.dumps(found_then))
    done = job.diag("analyze", str(folder))
    assert done.returncode == 3
    assert b"rank 2 was stuck for an hour" in done.stdout
    assert done.stderr == b"diag analyze: stored incident 20261129T164000Z-3f9c\n"
    again = job.diag("analyze", "--user-code", "/nowhere", str(folder))
    assert b"for an hour" not in again.stdout


def test_a_folder_that_cannot_be_written_is_one_line_and_status_1(job: HungJob, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = job.diag("snapshot", "-o", str(tmp_path / "file" / "out"), "--pid", pids(job, 0))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        f"diag snapshot: {tmp_path}/file/out: cannot be written: Not a directory"
    ]


@pytest.mark.parametrize(
    "arguments",
    [(), ("-o", "x", "--pid", "zero"), ("-o", "x", "no-such-job"), ("-o", "x", "j", "--pid", "1")],
)
def test_a_wrong_command_line_is_status_2(job: HungJob, arguments: tuple[str, ...]) -> None:
    done = job.diag("snapshot", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"diag snapshot: ")
