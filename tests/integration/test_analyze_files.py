"""``diag analyze FILES...`` on what the real tools write about a real hung job."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard
from tests.hung_job import PROGRAM, STUCK, STUCK_LINE, HungJob, hung_job
from tests.jobs import DEADLINE, until

RANKS: Final = 4
TOOLS: Final = {
    "pyspy.txt": ("py-spy", "dump", "--pid"),
    "pyspy.json": ("py-spy", "dump", "--json", "--pid"),
    "pyspy_native.txt": ("py-spy", "dump", "--native", "--pid"),
    "pyspy_locals.txt": ("py-spy", "dump", "--locals", "--pid"),
    "pystack.txt": ("pystack", "remote"),
    "pystack_native.txt": ("pystack", "remote", "--native"),
}


def dump(tool: str, pid: int) -> bytes:
    command, *flags = TOOLS[tool]
    path = Path(sys.executable).with_name(command)
    return subprocess.run([path, *flags, str(pid)], capture_output=True, timeout=DEADLINE, check=True).stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Generator[HungJob]:
    with hung_job(tmp_path_factory.mktemp("files"), ranks=RANKS) as running:
        yield running


@pytest.fixture(scope="module")
def dumps(job: HungJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``rank<k>.<tool>`` of every rank by every tool."""
    folder = tmp_path_factory.mktemp("dumps")
    for rank, pid in job.pids.items():
        for tool in TOOLS:
            (folder / f"rank{rank}.{tool}").write_bytes(dump(tool, pid))
        name = f"rank{rank}.faulthandler.txt"
        os.kill(pid, signal.SIGUSR1)
        until(lambda name=name: "<module>" in (job.folder / name).read_text(), name)  # type: ignore[misc] # bound
        shutil.copy(job.folder / name, folder)
    return folder


def analyze(job: HungJob, *arguments: object, given: bytes = b"") -> tuple[int, dict[str, Any], str]:
    """Exit status, diagnosis and messages."""
    command = [sys.executable, "-c", "import sys; from rankscope.diag.main import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "analyze", "--json", *map(str, arguments)],
        input=given,
        capture_output=True,
        timeout=DEADLINE,
        env={**os.environ, "RANKSCOPE_HOME": str(job.home)},
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout), done.stderr.decode()


def names_the_line(found: tuple[int, dict[str, Any], str]) -> bool:
    """A hang of the stuck rank at its line."""
    code, diagnosis, _ = found
    verdict = (code, diagnosis["verdict"], diagnosis["culprits"])
    return verdict == (3, "RankNonCommHang", [STUCK]) and points_at_the_line(found)


def points_at_the_line(found: tuple[int, dict[str, Any], str]) -> bool:
    """The others wait for the stuck rank and its line is named; some tools cannot tell idle from busy."""
    _, diagnosis, _ = found
    place = diagnosis["location"]
    waiting = {rank["rank"]: rank["waits_for"] for rank in diagnosis["ranks"] if rank["role"] == "victim"}
    return (
        diagnosis["culprits"] in ([], [STUCK])
        and place is not None
        and (place["line"], Path(place["file"]).name) == (STUCK_LINE, PROGRAM.name)
        and waiting == {rank: [STUCK] for rank in range(RANKS) if rank != STUCK}
    )


@pytest.mark.parametrize("tool", [*TOOLS, "faulthandler.txt"])
def test_each_tools_dumps_alone_name_the_rank_and_the_line(job: HungJob, dumps: Path, tool: str) -> None:
    found = analyze(job, *sorted(dumps.glob(f"rank*.{tool}")))
    assert points_at_the_line(found)
    assert found[2] == ""
    if "pyspy" in tool:
        assert names_the_line(found)


def test_all_tools_together_are_one_look_at_each_rank(job: HungJob, dumps: Path) -> None:
    found = analyze(job, dumps)
    assert names_the_line(found)
    _, diagnosis, messages = found
    assert messages == ""
    assert [(rank["rank"], rank["pid"]) for rank in diagnosis["ranks"]] == sorted(job.pids.items())
    assert diagnosis["confidence"] != "high"
    (main,) = [group for group in diagnosis["stacks"] if f"{STUCK}:{job.pids[STUCK]}" in group["threads"]]
    functions = [frame.partition(" ")[0] for frame in main["stack"]]
    assert functions.index("load_batch") > functions.index("Path.read_bytes") > 0  # C++ calls stand below


def test_compressed_and_plain_files_of_different_tools_are_read_together(
    job: HungJob, dumps: Path, tmp_path: Path
) -> None:
    (tmp_path / "rank0.txt.gz").write_bytes(gzip.compress((dumps / "rank0.pyspy.txt").read_bytes()))
    (tmp_path / "rank1.json.zst").write_bytes(zstandard.compress((dumps / "rank1.pyspy.json").read_bytes()))
    shutil.copy(dumps / "rank2.faulthandler.txt", tmp_path / "rank2")
    (tmp_path / "rank3").mkdir()
    (tmp_path / "rank3" / "stack.gz").write_bytes(gzip.compress((dumps / "rank3.pystack.txt").read_bytes()))
    found = analyze(job, tmp_path)
    assert points_at_the_line(found)
    assert found[1]["observed"] == "0-3"


def test_standard_input_holds_one_or_all_ranks(job: HungJob, dumps: Path) -> None:
    texts = [(dumps / f"rank{rank}.pyspy.txt").read_bytes() for rank in range(RANKS)]
    found = analyze(job, "-", given=b"\n".join(texts))
    by_pid = [pid for _, pid in sorted(job.pids.items())]
    assert sorted(by_pid) == [rank["pid"] for rank in found[1]["ranks"]]
    assert "numbered in the order of the process numbers" in found[2]
    if by_pid == sorted(by_pid):
        assert names_the_line(found)
    others = [dumps / f"rank{rank}.pyspy.txt" for rank in range(RANKS) if rank != STUCK]
    prefixed = b"".join(b"[rank%d]: %s\n" % (STUCK, line) for line in texts[STUCK].splitlines())
    assert names_the_line(analyze(job, *others, "-", given=prefixed))


def test_a_log_with_all_ranks_dumps_in_its_middle_names_the_line(
    job: HungJob, dumps: Path, tmp_path: Path
) -> None:
    lines = ["2026-11-29 16:40:00 INFO starting\r\n"]
    for rank in range(RANKS):
        stack = (dumps / f"rank{rank}.faulthandler.txt").read_text().splitlines()
        lines += [f"[rank{rank}]: {line}\n" for line in ("step 3 loss 0.25", *stack)]
    (tmp_path / "train.log").write_text("".join([*lines, *lines[:1] * 50]))
    assert points_at_the_line(analyze(job, tmp_path / "train.log"))


def test_a_pair_of_looks_may_be_certain(job: HungJob, dumps: Path, tmp_path: Path) -> None:
    for rank, pid in job.pids.items():
        shutil.copy(dumps / f"rank{rank}.pyspy.json", tmp_path / f"t0.rank{rank}.json")
        (tmp_path / f"t1.rank{rank}.json").write_bytes(dump("pyspy.json", pid))
    assert names_the_line(analyze(job, tmp_path))


def test_a_rank_without_a_dump_is_not_observed_and_is_not_blamed(job: HungJob, dumps: Path) -> None:
    files = [dumps / f"rank{rank}.pyspy.txt" for rank in range(RANKS) if rank != 1]
    found = analyze(job, *files)
    assert found[1]["culprits"] == [STUCK]
    assert found[1]["location"]["line"] == STUCK_LINE
    assert found[1]["unobserved"] == [{"rank": 1, "reason": "no dump of this rank was given"}]


def test_lost_input_is_counted_and_full_names_it(job: HungJob, dumps: Path, tmp_path: Path) -> None:
    files = [dumps / f"rank{rank}.pyspy.json" for rank in range(RANKS) if rank]
    whole = (dumps / "rank0.pyspy.json").read_bytes()
    (tmp_path / "rank0.json").write_bytes(whole[: len(whole) // 2])
    found = analyze(job, *files, tmp_path / "rank0.json")
    assert found[2].count("\n") == 1
    assert f"in {tmp_path}/rank0.json not understood (--full)" in found[2]
    full = analyze(job, "--full", *files, tmp_path / "rank0.json")
    assert f"{tmp_path}/rank0.json: " in full[2]
    assert "(--full)" not in full[2]


def test_nothing_that_says_anything_of_a_job_is_not_enough_evidence(job: HungJob, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1\nstep 2\n")
    code, diagnosis, _ = analyze(job, tmp_path / "train.log")
    assert (code, diagnosis["verdict"], diagnosis["ranks"]) == (5, "Unknown", [])


@pytest.mark.parametrize(
    "names", [("no-such-file", "rank0.txt"), ("empty",), ("-", "--pid", "1"), ("rank0.txt", "--all")]
)
def test_what_cannot_be_read_is_one_line_and_status_2(
    job: HungJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rank0.txt").touch()
    monkeypatch.chdir(tmp_path)
    done = job.diag("analyze", *names)
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(done.stderr.splitlines()) == 1


def test_a_path_wins_over_a_job_of_that_name_and_says_so(
    job: HungJob, dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.home / "jobs" / "run-7").mkdir(parents=True)
    (tmp_path / "run-7").mkdir()
    for file in dumps.glob("*.pyspy.txt"):
        shutil.copy(file, tmp_path / "run-7")
    monkeypatch.chdir(tmp_path)
    found = analyze(job, "run-7")
    assert names_the_line(found)
    assert "run-7 is a path here and a job" in found[2]


def test_who_died_is_told_by_the_log_and_who_waits_for_it_by_the_stacks(tmp_path: Path) -> None:
    with hung_job(tmp_path / "job", ranks=3) as job:
        folder = tmp_path / "dumps"
        folder.mkdir()
        for rank in (0, 1):
            (folder / f"rank{rank}.pyspy.txt").write_bytes(dump("pyspy.txt", job.pids[rank]))
        os.kill(job.pids[STUCK], signal.SIGKILL)
        assert job.finish() == 1
        shutil.copy(job.folder / "stderr", folder / "torchrun.log")
        code, diagnosis, _ = analyze(job, folder)
        assert (code, diagnosis["verdict"], diagnosis["culprits"]) == (3, "Exited", [STUCK])
        assert "rank 2 was killed by SIGKILL" in diagnosis["summary"]
        assert [rank["role"] for rank in diagnosis["ranks"]] == ["victim", "victim", "culprit"]
        alone = analyze(job, folder / "torchrun.log")
        assert (alone[0], alone[1]["culprits"]) == (3, [STUCK])
