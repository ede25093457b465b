"""Independent workers under ``diag run --job-execution-mode Async``, some of them killed in their work."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.programs import async_functions_job, shards_job
from tests.jobs import DEADLINE, Job, diag_run, until
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

PROGRAM = Path(shards_job.__file__)
ASYNC = "--job-execution-mode=Async"
RANKS = 3
SHARDS = 60
LINES = 40


def a_job_folder(folder: Path) -> Path:
    work = folder / "work"
    for name in ("shards", "results", "lives"):
        (work / name).mkdir(parents=True)
    for shard in range(SHARDS):
        (work / "shards" / str(shard)).write_text("".join(f"{shard}.{line}\n" for line in range(LINES)))
    return work


def committed(work: Path) -> set[str]:
    return {path.name for path in (work / "results").iterdir() if path.suffix == ""}


def lives(work: Path) -> dict[int, list[dict[str, Any]]]:
    """What each rank's processes were started with, by rank, in the order of their starts."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in (work / "lives").glob("*.json"):
        life = json.loads(path.read_text())
        found.setdefault(int(life["RANK"]), []).append(life)
    return {
        rank: sorted(each, key=lambda life: int(life["TORCHELASTIC_RESTART_COUNT"]))
        for rank, each in found.items()
    }


def has_left(work: Path, rank: int) -> bool:
    return any(int(name) % RANKS == rank for name in map(str, range(SHARDS)) if name not in committed(work))


def descendants_of(run_id: str) -> list[int]:
    """Processes that carry the job's run id."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"TORCHELASTIC_RUN_ID={run_id}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def kill_in_the_middle(work: Path, rank: int, pid: int) -> bool:
    """SIGKILL a worker that has shards left; whether it was so: nothing can change once it stands still."""
    try:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) in "TZX", f"rank {rank} to stand still")
        if state(pid) == "T" and has_left(work, rank):
            os.kill(pid, signal.SIGKILL)
            return True
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
    return False


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def kill_some(work: Path, chance: random.Random) -> Counter[int]:
    """SIGKILL each worker twice in the middle of its shards; how often each rank was killed."""
    kills: Counter[int] = Counter()
    # After so many of its own shards; those of others must not decide, for whoever was killed pauses.
    plans = {rank: sorted(chance.sample(range(1, SHARDS // RANKS - 8), 2)) for rank in range(RANKS)}

    def victims() -> list[int]:
        own = Counter(int(name) % RANKS for name in committed(work))
        alive = lives(work)
        return [
            rank
            for rank, plan in plans.items()
            if plan and own[rank] >= plan[0] and len(alive.get(rank, [])) == kills[rank] + 1
        ]

    while any(plans.values()):
        until(lambda: bool(victims()), "a worker to come as far as it is to come")
        for rank in victims():
            plans[rank].pop(0)
            if kill_in_the_middle(work, rank, lives(work)[rank][-1]["pid"]):
                kills[rank] += 1
    return kills


@pytest.mark.parametrize("seed", [20261130])
def test_workers_killed_at_random_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: int) -> None:
    work = a_job_folder(tmp_path)
    with diag_run(tmp_path, ASYNC, "--max-restarts=9", ranks=RANKS, script=[str(PROGRAM), str(work)]) as job:
        kills = kill_some(work, random.Random(seed))
        assert set(kills) == set(range(RANKS))
        assert job.finish() == 0, job.stderr[-3000:]
        assert descendants_of(job.run_id) == []
        assert committed(work) == {str(shard) for shard in range(SHARDS)}
        for shard in range(SHARDS):
            expected = [shards_job.infer(f"{shard}.{line}") for line in range(LINES)]
            assert (work / "results" / str(shard)).read_text().splitlines() == expected
        assert not (work / "twice").exists()
        # A process for each kill and one more: the others kept theirs.
        for rank, each in lives(work).items():
            assert [life["TORCHELASTIC_RESTART_COUNT"] for life in each] == [
                str(count) for count in range(kills[rank] + 1)
            ]
            assert {
                (life["RANK"], life["LOCAL_RANK"], life["WORLD_SIZE"], life["RANKSCOPE_SLOT"])
                for life in each
            } == {(str(rank), str(rank), str(RANKS), str(rank))}
        check_records(job, kills)


def check_records(job: Job, kills: Counter[int]) -> None:
    failed = job.events("worker.failed")
    assert Counter(event.data["rank"] for event in failed) == kills
    assert {event.data["exit_code"] for event in failed} == {-signal.SIGKILL}
    restarts = job.events("restart")
    assert Counter(event.data["worker"] for event in restarts) == kills
    assert {event.data["result"] for event in restarts} == {"running"}
    assert len(job.events("cycle.started")) == len(job.events("cycle.ended")) == 1
    assert {event.data["action"] for event in job.events("decision")} == {"restart"}
    logs = job.records.path.glob("nodes/*/logs/attempt_*/*/stdout.log")
    done = sorted(line for path in logs for line in path.read_text().splitlines())
    assert done == [f"rank {rank} is done" for rank in range(RANKS)]


def test_a_worker_past_its_limit_fails_the_job_with_torchruns_exit_code(tmp_path: Path) -> None:
    work = a_job_folder(tmp_path)
    script = [str(PROGRAM), str(work), "--fail=1"]
    with diag_run(tmp_path, ASYNC, "--max-restarts=1", ranks=2, script=script) as job:
        assert job.finish() == 1
        assert descendants_of(job.run_id) == []
        assert len(lives(work)[1]) == 2
        assert [event.data["action"] for event in job.events("decision")] == ["restart", "fail"]
        assert "exitcode  : 1" in job.stderr
        assert "rank      : 1 (local_rank: 1)" in job.stderr
        log = next(iter(job.records.path.glob("nodes/*/logs/attempt_1/1/stderr.log")))
        assert log.read_text().endswith("RuntimeError: the model does not fit\n")
        messages = {event.data["message"] for event in job.events("worker.failed")}
        assert messages == {"RuntimeError: the model does not fit"}


def test_a_start_that_fails_is_a_failure_like_any_other(tmp_path: Path) -> None:
    command = tmp_path / "once"
    command.write_text('#!/bin/sh\nrm "$0"; exit 3\n')
    command.chmod(0o700)
    flags = (ASYNC, "--max-restarts=1", "--no-python")
    with diag_run(tmp_path / "job", *flags, ranks=1, script=[str(command)]) as job:
        assert job.finish() == 1
        assert [event.data["action"] for event in job.events("decision")] == ["restart", "fail"]
        first, second = job.events("worker.failed")
        assert (first.data["exit_code"], second.data["exit_code"]) == (3, None)
        assert "it could not be started: [Errno 2] No such file or directory" in str(second.data["message"])
        assert "exitcode  : 127" in job.stderr


def test_a_failed_worker_of_a_critical_role_ends_the_job(tmp_path: Path) -> None:
    flags = (ASYNC, "--role=ps", "--max-num-of-job-restart=3", "--enable-job-restart=False")
    command = ["--no-python", "/bin/sh", "-c", '[ "$RANK" = 0 ] && exit 7; exec sleep 600']
    with diag_run(tmp_path, *flags, ranks=2, script=command) as job:
        assert job.finish() == 1
        assert descendants_of(job.run_id) == []
        (decision,) = job.events("decision")
        assert decision.data["action"] == "fail"
        assert "critical" in str(decision.data["reason"])
        assert "exitcode  : 7" in job.stderr


def test_a_critical_worker_restarts_all_until_its_limit_is_reached(tmp_path: Path) -> None:
    command = ["--no-python", "/bin/sh", "-c", 'echo "$RANK"; [ "$RANK" = 0 ] && exit 7; exec sleep 600']
    with diag_run(tmp_path, ASYNC, "--role=ps", "--max-restarts=1", ranks=2, script=command) as job:
        assert job.finish() == 1
        assert [event.data["action"] for event in job.events("decision")] == ["restart", "fail"]
        assert len(job.events("cycle.started")) == 2
        assert job.stdout.split().count("0") == 2


def test_a_worker_of_an_agent_that_was_killed_goes_on_with_its_own_restart_count(tmp_path: Path) -> None:
    """Rank 0 runs on; rank 1 fails in its first life, and in its second the agent is killed."""
    told = tmp_path / "told"
    text = f"life=$RANK.$TORCHELASTIC_RESTART_COUNT; echo $life >> {told}; [ $life = 1.0 ] && exit 7"
    command = ["--no-python", "/bin/sh", "-c", f"{text}; exec sleep 600"]
    with diag_run(tmp_path, ASYNC, "--max-restarts=2", ranks=2, script=command) as job:
        until(lambda: "1.1" in words_of(told), "the first restart")
        job.signal(signal.SIGKILL)
        job.finish()
        with diag_run(tmp_path, ASYNC, "--max-restarts=2", ranks=2, script=command) as again:
            until(lambda: len(words_of(told)) == 5, "both ranks to run again")
            assert sorted(words_of(told)) == ["0.0", "0.0", "1.0", "1.1", "1.1"]
            again.signal(signal.SIGTERM)
            again.finish()


def test_a_worker_that_launches_ranks_is_one_worker(tmp_path: Path) -> None:
    # They live long enough to be found, as they are in Sync.
    rank = f"OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=job '{sys.executable}' -c 'import time; time.sleep(4)' &"
    ranks = " ".join(f"OMPI_COMM_WORLD_RANK={number} {rank}" for number in (1, 2))
    script = f'[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && exit 0; {ranks} wait; exit 7'
    command = ["--no-python", "/bin/sh", "-c", script]
    with diag_run(tmp_path, ASYNC, "--max-restarts=1", ranks=1, script=command) as job:
        assert job.finish() == 0, job.stderr[-3000:]
        assert [event.data["rank"] for event in job.events("worker.failed")] == [0]
        assert [event.data["worker"] for event in job.events("restart")] == [0]
        assert "run below the worker" not in job.stderr


def words_of(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_sigterm_to_the_agent_ends_all_and_starts_nobody_again(tmp_path: Path) -> None:
    # Rank 0 has died twice at once and waits for its next start when the signal comes, to rank 1 first.
    command = ["--no-python", "/bin/sh", "-c", '[ "$RANK" = 0 ] && exit 7; exec sleep 600']
    with diag_run(tmp_path, ASYNC, ranks=2, script=command) as job:
        until(lambda: len(job.events("restart.begun")) == 2, "the second restart to be decided")
        os.kill(next(worker.pid for worker in job.agent().workers if worker.rank == 1), signal.SIGTERM)
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert descendants_of(job.run_id) == []
        assert {event.data["rank"] for event in job.events("worker.failed")} == {0}
        assert len(job.events("restart")) == 1
        (ended,) = job.events("job.ended")
        assert ended.data["result"] == "stopped by SIGTERM"
        (stopping,) = job.events("stopping")
        assert stopping.data["reason"] == "SIGTERM"


def test_a_job_that_fails_on_one_node_ends_on_the_others(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # The agents meet in a store that outlives either of them.
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    both = [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{store.port}",
        "--rdzv-id=async-two",
    ]
    # Rank 1 fails once rank 0 runs, which would go on for ever.
    script = (
        f'[ "$RANK" = 0 ] && echo > {work}/up && exec sleep 600; while [ ! -e {work}/up ]; do :; done; exit 7'
    )
    command = ["--no-python", "/bin/sh", "-c", script]
    flags = (ASYNC, "--max-restarts=0", *both)
    with (
        diag_run(tmp_path / "a", *flags, ranks=1, script=command) as one,
        diag_run(tmp_path / "b", *flags, ranks=1, script=command) as other,
    ):
        assert (one.finish(), other.finish()) == (1, 1)
        assert descendants_of("async-two") == []
        errors = one.stderr + other.stderr
        assert errors.count("exitcode  : 7") == 1
        assert "another node has ended the job" in errors


def test_functions_return_their_values_by_rank_and_nothing_of_them_is_left(tmp_path: Path) -> None:
    env = os.environ | {
        "RANKSCOPE_HOME": str(tmp_path / "home"),
        "RANKSCOPE_JOB_EXECUTION_MODE": "Async",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, async_functions_job.__file__, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    values = {"0": 100, "1": 101, "2": 102}
    nothing = {"children": [], "descriptors": 0, "threads": 0, "ours": []}
    assert json.loads(done.stdout) == {"returned": [values, values]} | nothing
    assert done.stderr.count("it alone is restarted, restart 1 of 2") == 4
