"""Which processes of this host are ranks: real processes with the launchers' variables."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from tests.capture_factory import WAITING, WITH_CHILDREN, end_group, first_line, running, waiting_process

from rankscope.diag import proc
from rankscope.diag.discover import (
    FoundJob,
    FoundRank,
    find_jobs,
    progress_from_slot,
    progress_of,
    ranks_of_pids,
)
from rankscope.diag.discover.rank_variables import RankIdentity, identify
from rankscope.watchdog.page import GroupSeq, PageReader, SlotWriter, create_page

LAUNCHER = """
import json, os, subprocess, sys
workers = []
for variables in json.loads(sys.argv[1]):
    workers.append(subprocess.Popen([sys.executable, "-c", sys.argv[2]], env={**os.environ, **variables},
                                    stdout=subprocess.PIPE))
    workers[-1].stdout.readline()
print(*(worker.pid for worker in workers), flush=True)
workers[0].wait()
"""


@contextlib.contextmanager
def launched(
    *workers: Mapping[str, str], code: str = WAITING, env: Mapping[str, str] | None = None
) -> Generator[tuple[int, list[int]]]:
    """A launcher and its workers' pids, one for each set of variables."""
    with running(LAUNCHER, env=env, argv=(json.dumps(workers), code)) as launcher:
        yield launcher.pid, [int(pid) for pid in first_line(launcher)]


def a_worker(rank: int, *, run_id: str | None = None, **more: str) -> dict[str, str]:
    variables = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank), **more}
    return {**variables, "TORCHELASTIC_RUN_ID": run_id} if run_id else variables


def job_named(name: str) -> FoundJob:
    (job,) = (job for job in find_jobs() if job.job == name)
    return job


def pids(job: FoundJob) -> dict[int, int]:
    return {rank.rank: rank.pid for rank in job.ranks}


def test_ranks_are_grouped_by_run_id_in_rank_order() -> None:
    with launched(a_worker(1, run_id="test-a"), a_worker(0, run_id="test-a")) as (_launcher, workers):
        job = job_named("test-a")
        assert pids(job) == {0: workers[1], 1: workers[0]}
        assert job.world_size == 4
        assert job.ranks[0].start_ticks == proc.start_ticks(workers[1])
        assert job.ranks[0].local_rank == 0


def test_ranks_without_a_run_id_are_grouped_by_the_process_that_launched_them() -> None:
    with launched(a_worker(0), a_worker(1)) as (launcher, workers):
        assert pids(job_named(f"pid-{launcher}")) == {0: workers[0], 1: workers[1]}


def test_a_child_of_a_rank_is_no_rank() -> None:
    with launched(a_worker(0, run_id="test-b"), code=WITH_CHILDREN) as (_launcher, (worker,)):
        assert pids(job_named("test-b")) == {0: worker}


def test_a_child_that_carries_its_ranks_mark_is_no_rank_even_when_the_rank_is_gone() -> None:
    marked = a_worker(0, run_id="test-c", RANKSCOPE_RANK_PID="1")
    with launched(marked) as (_launcher, (worker,)):
        assert not [job for job in find_jobs() if job.job == "test-c"]
        assert ranks_of_pids([worker]).jobs[0].job.startswith("pid-")


def test_a_shell_around_a_rank_is_not_the_rank() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"'{sys.executable}' -c '{WAITING}'; true"],
        env={**os.environ, **a_worker(2, run_id="test-d")},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        first_line(shell)
        (python,) = proc.children(shell.pid)
        assert pids(job_named("test-d")) == {2: python}
    finally:
        end_group(shell)


@pytest.mark.parametrize(
    "launcher_env",
    [{"RANK": "0", "WORLD_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}],
    ids=["kubernetes", "slurm"],
)
def test_a_launcher_that_inherited_a_rank_is_none(launcher_env: Mapping[str, str]) -> None:
    workers = (a_worker(0, run_id="test-e"), a_worker(1, run_id="test-e"))
    with launched(*workers, env=launcher_env) as (launcher, started):
        assert pids(job_named("test-e")) == {0: started[0], 1: started[1]}
        assert not [job for job in find_jobs() if launcher in pids(job).values()]


def test_a_launcher_that_has_not_launched_anything_yet_is_no_rank(tmp_path: Path) -> None:
    program = tmp_path / "torchrun"
    program.write_text(WAITING)
    launcher = subprocess.Popen(
        [sys.executable, str(program), "train.py"],
        env={**os.environ, "RANK": "0"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        first_line(launcher)
        assert not [job for job in find_jobs() if launcher.pid in pids(job).values()]
    finally:
        end_group(launcher)


def test_a_rank_of_a_launch_without_run_id_under_slurm_is_not_its_launcher() -> None:
    with launched(a_worker(0), a_worker(1), env={"SLURM_PROCID": "0"}) as (launcher, started):
        assert pids(job_named(f"pid-{launcher}")) == {0: started[0], 1: started[1]}


def test_ranks_started_by_a_rank_are_its_children() -> None:
    inner = json.dumps([a_worker(0, run_id="test-inner"), a_worker(1, run_id="test-inner")])
    outer = f"import sys; sys.argv[1:] = [{inner!r}, {WAITING!r}]\n{LAUNCHER}"
    with launched(a_worker(0, run_id="test-outer"), code=outer) as (_launcher, (worker,)):
        assert pids(job_named("test-outer")) == {0: worker}
        assert not [job for job in find_jobs() if job.job == "test-inner"]


def test_two_processes_with_one_rank_give_the_later_attempt() -> None:
    old = a_worker(0, run_id="test-f", TORCHELASTIC_RESTART_COUNT="1")
    new = a_worker(0, run_id="test-f", TORCHELASTIC_RESTART_COUNT="2")
    with launched(new, old) as (_launcher, workers):
        assert pids(job_named("test-f")) == {0: workers[0]}


def test_a_given_launcher_stands_for_its_ranks_and_a_given_rank_for_itself() -> None:
    with launched(a_worker(0, run_id="test-g"), a_worker(1, run_id="test-g")) as (launcher, workers):
        by_launcher = ranks_of_pids([launcher])
        assert by_launcher.problems == ()
        assert pids(by_launcher.jobs[0]) == {0: workers[0], 1: workers[1]}
        assert pids(ranks_of_pids([workers[1]]).jobs[0]) == {1: workers[1]}
        assert ranks_of_pids([launcher, workers[1]]).jobs == by_launcher.jobs


def test_given_children_of_given_ranks_are_not_counted_twice() -> None:
    with launched(a_worker(0, run_id="test-h"), code=WITH_CHILDREN) as (_launcher, (worker,)):
        forked = proc.children(worker)[0]
        assert pids(ranks_of_pids([forked, worker]).jobs[0]) == {0: worker}


def test_given_processes_without_a_rank_are_numbered_and_it_is_said() -> None:
    with waiting_process() as first, waiting_process() as second:
        found = ranks_of_pids([second.pid, first.pid])
        assert pids(found.jobs[0]) == {0: second.pid, 1: first.pid}
        assert found.problems == (
            f"no rank in the environment of process {second.pid},{first.pid}: numbered in the order given",
        )


def test_a_given_program_that_is_no_python_or_launches_ranks_is_no_rank(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(WAITING)
    waits = [["sleep", "1000"], [sys.executable, str(launcher)]]
    with contextlib.ExitStack() as ending:
        started: list[subprocess.Popen[bytes]] = []
        for command in waits:
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
            ending.callback(end_group, started[-1])
        first_line(started[1])
        found = ranks_of_pids([one.pid for one in started])
        assert found.jobs == ()
        assert (
            found.problems[0] == f"process {started[0].pid} (sleep) runs no Python, and no rank runs below it"
        )
        assert found.problems[1].endswith("launches ranks, and has none now")


def test_a_launch_without_a_name_is_called_the_same_whoever_runs_beside_it() -> None:
    with launched(a_worker(0, run_id="none", MASTER_PORT="1")) as (launcher, (worker,)):
        alone = ranks_of_pids([worker]).jobs[0].job
        with launched(a_worker(0, run_id="none", MASTER_PORT="2")):
            assert pids(job_named(alone)) == {0: worker}
        assert alone == f"none (pid {launcher})"


def test_given_pids_that_are_gone_or_no_rank_get_a_line_each() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with launched(a_worker(3, run_id="test-i")) as (_launcher, (worker,)), waiting_process() as other:
        found = ranks_of_pids([gone.pid, worker, other.pid])
        assert pids(found.jobs[0]) == {3: worker}
        assert found.problems[0] == f"there is no process {gone.pid}"
        assert found.problems[1].startswith(f"process {other.pid} (")
    assert ranks_of_pids([gone.pid]).jobs == ()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "x"}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": "2", "SLURM_PROCID": "7"}, RankIdentity(2, "RANK")),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            RankIdentity(1, "OMPI_COMM_WORLD_RANK", world_size=4, local_rank=0),
        ),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            RankIdentity(1, "RANK", world_size=2, local_size=2),
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            RankIdentity(1, "RANK", world_size=2),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_STEP_NUM_NODES": "1"},
            RankIdentity(0, "SLURM_PROCID", world_size=3, local_size=3),
        ),
        ({"PMIX_RANK": "5"}, RankIdentity(5, "PMIX_RANK")),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, RankIdentity(5, "PMI_RANK", world_size=6)),
        (
            {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"},
            RankIdentity(3, "SLURM_PROCID", world_size=8, local_rank=1),
        ),
        ({"TF_CONFIG": "{"}, None),
        ({"TF_CONFIG": "{}"}, None),
        ({"TF_CONFIG": '{"task": {"type": "ps", "index": 0}}'}, None),
        (
            {
                "TF_CONFIG": '{"cluster": {"chief": ["a"], "worker": ["b", "c"]}, '
                '"task": {"type": "worker", "index": 1}}'
            },
            RankIdentity(2, "TF_CONFIG", world_size=3),
        ),
        (
            {"TF_CONFIG": '{"cluster": {"chief": ["a"]}, "task": {"type": "chief", "index": 0}}'},
            RankIdentity(0, "TF_CONFIG", world_size=1),
        ),
    ],
)
def test_each_launchers_variables_are_read(
    environment: Mapping[str, str], expected: RankIdentity | None
) -> None:
    assert identify(environment) == expected


def test_a_live_ranks_progress_is_read_from_its_page(tmp_path: Path) -> None:
    page = tmp_path / "progress.page"
    create_page(page, 2)
    variables = {
        "RANKSCOPE_PAGE": str(page),
        "RANKSCOPE_SLOT": "1",
        "RANKSCOPE_JOB_DIR": str(tmp_path / "test-j"),
    }
    with launched(a_worker(0, run_id="test-j", **variables)) as (_launcher, (worker,)):
        job = job_named("test-j")
        assert job.job_dir == str(tmp_path / "test-j")
        (rank,) = job.ranks
        assert (rank.page, rank.slot) == (str(page), 1)
        assert progress_of(rank) is None
        writer = SlotWriter(page, 1)
        writer.claim(rank=0, pid=worker, start_ticks=rank.start_ticks)
        writer.step(7, 3_000_000_000)
        writer.groups((GroupSeq("default", 4, enqueued=9, completed=8),))
        progress = progress_of(rank, now_ns=5_500_000_000)
        writer.close()
        assert progress is not None
        assert (progress.step, progress.seconds_since_step, progress.seconds_since_beat) == (7, 2.5, None)
        assert (progress.groups[0].enqueued, progress.groups[0].completed) == (9, 8)


def test_a_page_of_another_process_or_no_page_gives_no_progress(tmp_path: Path) -> None:
    page = tmp_path / "progress.page"
    create_page(page, 1)
    writer = SlotWriter(page, 0)
    writer.claim(rank=0, pid=12, start_ticks=5)
    writer.close()
    assert progress_of(FoundRank(0, 12, 5, page=str(page), slot=0)) is not None
    assert progress_of(FoundRank(0, 12, 6, page=str(page), slot=0)) is None
    assert progress_of(FoundRank(0, 12, 5, page=str(page), slot=3)) is None
    assert progress_of(FoundRank(0, 12, 5, page=str(tmp_path / "none"), slot=0)) is None
    assert progress_of(FoundRank(0, 12, 5)) is None


def test_a_time_after_now_has_age_zero(tmp_path: Path) -> None:
    page = tmp_path / "progress.page"
    create_page(page, 1)
    writer = SlotWriter(page, 0)
    writer.beat(2_000)
    writer.close()
    with contextlib.closing(PageReader(page)) as reader:
        assert progress_from_slot(reader.read(0), now_ns=1_000).seconds_since_beat == 0.0


def test_two_launches_of_one_run_id_are_two_jobs() -> None:
    """Every torchrun with ``--master-port`` has the run id "none"."""
    one = a_worker(0, run_id="test-none", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    two = a_worker(0, run_id="test-none", MASTER_ADDR="127.0.0.1", MASTER_PORT="2")
    with launched(one) as (first, _), launched(two) as (second, _):
        found = [job for job in find_jobs() if job.job.startswith("test-none")]
        assert {job.job for job in found} == {f"test-none (pid {first})", f"test-none (pid {second})"}
        both = ranks_of_pids([first, second])
        assert [len(job.ranks) for job in both.jobs] == [1, 1]
