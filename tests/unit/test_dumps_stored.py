"""Snapshots of several hosts and runs put together, and what a folder of files holds."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import msgspec
import pytest

from rankscope.diag.dumps import read_dumps, read_jobs
from rankscope.diag.dumps.find import find_inputs
from rankscope.diag.dumps.gather import NO_DUMP
from rankscope.diag.errors import UsageError
from rankscope.diag.model import Frame, JobSnapshot, RankSnapshot, ThreadStack
from rankscope.diag.store.look import LookFolder


def a_rank(rank: int, pid: int, line: int = 8) -> RankSnapshot:
    frames = (Frame("load_batch", "/workspace/train.py", line),)
    threads = (ThreadStack(pid, "MainThread", frames, is_main=True),)
    return RankSnapshot(rank, f"host{pid // 100}", pid, 7, source="py-spy", threads=threads)


def a_look(*ranks: RankSnapshot, time: float, size: int, job: str = "run-7") -> JobSnapshot:
    known = {rank.rank for rank in ranks}
    absent = [
        RankSnapshot(rank, observed=False, reason="elsewhere") for rank in range(size) if rank not in known
    ]
    return JobSnapshot(job, time, size, (*ranks, *absent))


def store(root: Path, host: str, *looks: JobSnapshot) -> None:
    folder = LookFolder.create(root, host, looks[0])
    if len(looks) > 1:
        folder.add_second(looks[1])


def pids_of(snapshot: JobSnapshot | None) -> dict[int, int]:
    assert snapshot is not None
    return {rank.rank: rank.pid for rank in snapshot.ranks if rank.observed}


def test_hosts_of_one_job_are_put_together_and_their_placeholders_forgotten(tmp_path: Path) -> None:
    for host, base in (("a", 100), ("b", 200)):
        ranks = [a_rank(base // 100 * 2 - 2 + at, base + at) for at in (0, 1)]
        store(tmp_path, host, *(a_look(*ranks, time=10.0 + later, size=5) for later in (0, 4)))
    first, second = read_dumps([tmp_path]).pair
    assert pids_of(first) == pids_of(second) == {0: 100, 1: 101, 2: 200, 3: 201}
    assert [(rank.rank, rank.reason) for rank in first.ranks if not rank.observed] == [(4, NO_DUMP)]
    assert first.world_size == 5


def test_of_a_rank_that_was_looked_at_several_times_the_newest_look_counts(tmp_path: Path) -> None:
    store(tmp_path, "a", a_look(a_rank(0, 100), a_rank(1, 101), time=10.0, size=2))
    store(tmp_path, "a", a_look(a_rank(1, 301), time=90.0, size=2), a_look(a_rank(1, 301), time=94.0, size=2))
    store(tmp_path, "a", a_look(a_rank(1, 201), time=50.0, size=2))
    job = read_dumps([tmp_path])
    assert pids_of(job.pair[1]) == {0: 100, 1: 301}
    assert pids_of(job.pair[0]) == {1: 301}
    assert job.notes == (
        "job run-7: its snapshots were taken up to 80 s apart",
        "job run-7: 1 older snapshot(s) of the same ranks left out",
    )


def test_jobs_without_a_run_id_are_one_job_when_their_ranks_fit(tmp_path: Path) -> None:
    store(tmp_path, "a", a_look(a_rank(0, 100), time=10.0, size=2, job="pid-99"))
    store(tmp_path, "b", a_look(a_rank(1, 200), time=10.0, size=2, job="pid-55"))
    store(tmp_path, "c", a_look(a_rank(0, 300), time=10.0, size=1, job="pid-77"))
    jobs = read_jobs([tmp_path])
    assert [sorted(pids_of(job.pair[0]).values()) for job in jobs] == [[300], [100, 200]]


def test_snapshots_of_several_jobs_are_several_answers(tmp_path: Path) -> None:
    store(tmp_path, "a", a_look(a_rank(0, 100), time=10.0, size=1, job="run-7"))
    store(tmp_path, "a", a_look(a_rank(0, 101), time=10.0, size=1, job="run-8"))
    assert [job.pair[0].job for job in read_jobs([tmp_path])] == ["run-7", "run-8"]
    with pytest.raises(UsageError, match="run-7, run-8"):
        read_dumps([tmp_path])


def test_dumps_beside_a_snapshot_fill_the_ranks_that_it_lacks(tmp_path: Path) -> None:
    store(tmp_path / "seen", "a", a_look(a_rank(0, 100), time=10.0, size=2))
    (tmp_path / "rank1.txt").write_text(
        "Process 200: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 200 (idle): "MainThread"\n    load_batch (train.py:8)\n'
    )
    job = read_dumps([tmp_path])
    assert pids_of(job.pair[0]) == {0: 100, 1: 200}
    assert job.pair[0].job == "run-7"


def test_a_damaged_snapshot_is_named_and_the_other_look_counts(tmp_path: Path) -> None:
    store(tmp_path, "a", a_look(a_rank(0, 100), time=10.0, size=1), a_look(a_rank(0, 100), time=14.0, size=1))
    (damaged,) = tmp_path.rglob("snapshot-a.json.zst")
    damaged.write_bytes(damaged.read_bytes()[:20])
    job = read_dumps([tmp_path])
    assert pids_of(job.pair[0]) == {0: 100}
    assert job.pair[1] is None
    (problem,) = job.problems
    assert problem.where.endswith("snapshot-a.json.zst")


def test_a_look_s_folder_appears_whole_and_never_takes_another_s_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["one", "one", "two"])
    monkeypatch.setattr("rankscope.diag.store.look.new_incident_id", lambda _time: next(names))
    looks = [a_look(a_rank(0, pid), time=10.0, size=1) for pid in (100, 101)]
    folders = [LookFolder.create(tmp_path, "host", look) for look in looks]
    assert [folder.path.name for folder in folders] == ["one", "two"]
    assert sorted(path.name for path in (tmp_path / "host").iterdir()) == ["one", "two"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            LookFolder.create(tmp_path, "host", a_look(a_rank(0, 100), time=10.0, size=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "host").iterdir()) == []


def test_folders_are_walked_without_hidden_files_weights_and_doubles(tmp_path: Path) -> None:
    for name in ("rank10.txt", "rank2.txt", ".hidden", "model.pt", "a/rank0.txt", ".git/rank1.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    os.mkfifo(tmp_path / "pipe")
    found = find_inputs([tmp_path, tmp_path / "rank2.txt"])
    assert [file.shown for file in found.files] == ["a/rank0.txt", "rank2.txt", "rank10.txt"]
    assert found.left_out == {".pt": 1}


def test_of_torchruns_log_folders_the_last_attempt_is_read(tmp_path: Path) -> None:
    for attempt, error in ((0, "ValueError: first"), (1, "ValueError: second")):
        folder = tmp_path / "none_abc" / f"attempt_{attempt}" / "1"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(
            f'Traceback (most recent call last):\n  File "/w/train.py", line 8, in <module>\n{error}\n'
        )
    job = read_dumps([tmp_path])
    end = {rank.rank: rank.exit for rank in job.pair[0].ranks}[1]
    assert end is not None
    assert end.message == "ValueError: second"
    assert [problem.what for problem in job.problems] == ["logs of earlier attempts, left out"]


def test_a_file_in_which_nothing_is_understood_is_a_problem_and_an_empty_log_is_none(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text('{"culprits": [1]}')
    (tmp_path / "rank0.stdout.txt").touch()
    (tmp_path / "rank0.stderr.txt").write_text("step 1\n")
    job = read_dumps([tmp_path])
    assert [(problem.where, problem.what) for problem in job.problems] == [
        ("truth.json", "nothing in it was understood")
    ]


def test_names_that_are_no_text_are_read_and_can_be_written_as_json(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9/host\xff"))
    folder.mkdir(parents=True)
    (folder / "rank0.txt").write_text(
        "Process 9: python\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 9 (idle)\n    f (a.py:1)\n"
    )
    job = read_dumps([folder.parent])
    assert job.pair[0].ranks[0].node == "host\ufffd"
    assert msgspec.json.encode(job.pair[0])
