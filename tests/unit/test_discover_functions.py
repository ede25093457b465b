"""Ranks that no variable names, and processes that only look like ranks: real processes, without torch.

A process counts as one that has torch loaded by a mapped file of that name, and as one with a process group
by the name of a thread, as torch gives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from tests.capture_factory import HIDDEN, end_group, first_line, running, seen_without_capabilities

from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, find_jobs, jobs_named, ranks_of_pids
from rankscope.diag.discover.candidates import look_at, program_of
from rankscope.diag.discover.function_workers import function_jobs
from rankscope.diag.errors import UsageError

LOADED = """
import ctypes, mmap, os, sys, threading, time
def load_torch(folder):
    path = os.path.join(folder, "libtorch_cpu.so")
    with open(path, "wb") as file:
        file.truncate(mmap.PAGESIZE)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
def join_group():
    named = threading.Event()
    def run():
        ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop", 0, 0, 0)
        named.set()
        time.sleep(1000)
    threading.Thread(target=run, daemon=True).start()
    named.wait()
def ready(*words):
    print("ready", *words, flush=True)
    time.sleep(1000)
loaded = load_torch(sys.argv[1])
"""
TOLD = LOADED + "def main(rank, world_size):\n    join_group()\n    ready()\nmain(int(sys.argv[2]), 4)"
UNTOLD = LOADED + "join_group()\nready()"
SET_LATER = LOADED + "os.environ.update(RANK=sys.argv[2], WORLD_SIZE='4')\nready()"
ALONE = LOADED + "ready()"
WITH_FORKED = LOADED + "join_group()\nforked = os.fork()\nready(forked) if forked else time.sleep(1000)"

WAITING_CODE = "import time\nprint('ready', flush=True)\ntime.sleep(1000)\n"

STARTER = """
import json, os, subprocess, sys
env = {**os.environ, **json.loads(sys.argv[2])}
for arguments in json.loads(sys.argv[1]):
    worker = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=env)
    worker.stdout.readline()
    print(worker.pid, flush=True)
worker.wait()
"""


@contextlib.contextmanager
def started(
    *workers: tuple[str, ...], env: Mapping[str, str] | None = None
) -> Generator[tuple[int, list[int]]]:
    """A process and those it started: code or program and arguments of each, variables for all of them."""
    commands = [["-c", *words] if "\n" in words[0] else words for words in workers]
    with running(STARTER, argv=(json.dumps(commands), json.dumps(env or {}))) as starter:
        yield starter.pid, [int(first_line(starter)[0]) for _ in workers]


def ranks(job: FoundJob) -> dict[int, int]:
    return {rank.rank: rank.pid for rank in job.ranks}


def job_of(pid: int) -> FoundJob:
    (job,) = (job for job in find_jobs() if pid in ranks(job).values())
    return job


def are_in_a_job(*pids: int) -> bool:
    return any(set(pids).intersection(ranks(job).values()) for job in find_jobs())


def test_a_script_that_is_told_its_rank_by_argument_is_found_by_the_variable(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with started((TOLD, folder, "2"), (TOLD, folder, "0")) as (starter, workers):
        job = job_of(workers[0])
        assert ranks(job) == {0: workers[1], 2: workers[0]}
        assert (job.job, job.world_size) == (f"pid-{starter}", 4)
        assert job.notes == ("ranks from the variable rank of main on their stacks",)
        assert ranks_of_pids([starter]).jobs == (job,)
        (one,) = ranks_of_pids([workers[0]]).jobs
        assert ranks(one) == {2: workers[0]}


def test_two_workers_with_one_number_are_numbered_by_their_start(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with started((TOLD, folder, "1"), (TOLD, folder, "1")) as (_starter, workers):
        assert ranks(job_of(workers[0])) == dict(enumerate(workers))


def test_workers_that_nothing_names_are_numbered_by_their_start_and_it_is_said(tmp_path: Path) -> None:
    with started((UNTOLD, str(tmp_path)), (UNTOLD, str(tmp_path))) as (_starter, workers):
        job = job_of(workers[0])
        assert ranks(job) == dict(enumerate(workers))
        assert job.notes == ("ranks by order of start: nothing says which rank is which",)


def test_stacks_that_cannot_be_read_leave_the_order_of_start(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with started((TOLD, folder, "1"), (TOLD, folder, "0")) as (starter, workers):
        table = proc.process_table()
        seen = look_at(proc.descendants(starter, table=table), table)
        (job,) = function_jobs(seen.nameless, table, taken=(), ask=lambda _pids: {})
        assert ranks(job) == dict(enumerate(workers))
        assert job.notes == ("ranks by order of start: nothing says which rank is which",)


def test_what_runs_below_a_rank_of_another_job_is_no_worker(tmp_path: Path) -> None:
    with started((UNTOLD, str(tmp_path)), (UNTOLD, str(tmp_path))) as (starter, _workers):
        table = proc.process_table()
        seen = look_at(proc.descendants(starter, table=table), table)
        assert function_jobs(seen.nameless, table, taken=(starter,)) == ()


@pytest.mark.parametrize("is_told_where_to_meet", [True, False])
def test_functions_without_a_group_whose_stacks_cannot_be_read_need_a_place_to_meet(
    *, is_told_where_to_meet: bool, tmp_path: Path
) -> None:
    """Workers before their group is up; a pool of processes looks the same but for the port."""
    forks = LOADED + "forked = [os.fork() or ready() for _ in range(2)]\nready(*forked)"
    env = {"MASTER_PORT": "7001"} if is_told_where_to_meet else {}
    with running(forks, argv=(str(tmp_path),), env=env) as process:
        first_line(process)
        table = proc.process_table()
        seen = look_at((process.pid, *proc.descendants(process.pid, table=table)), table)
        jobs = function_jobs(seen.nameless, table, taken=(), ask=lambda _pids: {})
        assert [sorted(ranks(job).values()) for job in jobs] == (
            [list(proc.children(process.pid))] if is_told_where_to_meet else []
        )


def test_a_rank_set_after_the_start_is_read_from_the_process(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with started((SET_LATER, folder, "3"), (SET_LATER, folder, "1")) as (_starter, workers):
        job = job_of(workers[0])
        assert ranks(job) == {1: workers[1], 3: workers[0]}
        assert (job.world_size, job.notes) == (4, ())


def test_lightnings_way_the_rank_that_started_the_others_is_one_of_them(tmp_path: Path) -> None:
    first = LOADED + (
        "import subprocess\n"
        "os.environ.update(LOCAL_RANK='0', MASTER_PORT='7000')\n"
        "second = subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]],\n"
        "    env={**os.environ, 'LOCAL_RANK': '1'}, stdout=subprocess.PIPE)\n"
        "second.stdout.readline()\njoin_group()\nready(second.pid)\n"
    )
    with running(first, argv=(str(tmp_path), UNTOLD)) as process:
        second = int(first_line(process)[1])
        job = job_of(process.pid)
        assert ranks(job) == {0: process.pid, 1: second}
        assert job.notes == ("ranks from LOCAL_RANK: on this host",)


def test_a_child_of_a_worker_is_none(tmp_path: Path) -> None:
    with running(WITH_FORKED, argv=(str(tmp_path),)) as process:
        forked = int(first_line(process)[1])
        assert ranks(job_of(process.pid)) == {0: process.pid}
        assert not are_in_a_job(forked)


def test_torch_alone_makes_no_rank(tmp_path: Path) -> None:
    """A notebook, a TensorBoard, a server of models."""
    with started((ALONE, str(tmp_path)), (ALONE, str(tmp_path))) as (_starter, workers):
        assert not are_in_a_job(*workers)


@pytest.mark.parametrize("name", ["ipykernel_launcher.py", "tensorboard"])
def test_a_program_beside_the_training_is_no_rank_of_its_pod(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ALONE)
    (tmp_path / "train.py").write_text(ALONE)
    folder = str(tmp_path)
    beside, training = (str(tmp_path / name), folder), (str(tmp_path / "train.py"), folder)
    with started(beside, training, env={"RANK": "0", "WORLD_SIZE": "2"}) as (_starter, workers):
        assert ranks(job_of(workers[1])) == {0: workers[1]}
        assert not are_in_a_job(workers[0])


def test_an_entry_point_that_inherited_the_rank_of_the_training_it_starts_is_none(tmp_path: Path) -> None:
    entry = "import subprocess\n" + STARTER
    commands = json.dumps([["-c", ALONE, str(tmp_path)]])
    with running(entry, argv=(commands, "{}"), env={"RANK": "0", "WORLD_SIZE": "2"}) as process:
        training = int(first_line(process)[0])
        assert ranks(job_of(training)) == {0: training}
        assert not are_in_a_job(process.pid)


def test_the_tasks_of_srun_behind_shells_are_one_job() -> None:
    """Each task is a shell of its own that sets RANK, as Slurm's users do."""
    shell = f"export RANK=$SLURM_PROCID; {sys.executable} -c 'print(\"up\", flush=True); input()'; true"
    step = (
        "import os, subprocess, sys\n"
        "for task in range(2):\n"
        "    env = {**os.environ, 'SLURM_PROCID': str(task), 'SLURM_NTASKS': '2', 'SLURM_JOB_ID': '7'}\n"
        "    one = subprocess.Popen(['sh', '-c', sys.argv[1]], env=env, stdin=subprocess.PIPE,\n"
        "                           stdout=subprocess.PIPE)\n"
        "    one.stdout.readline()\n"
        "print('ready', flush=True)\none.wait()\n"
    )
    with running(step, argv=(shell,)) as stepd:
        assert first_line(stepd) == ["ready"]
        below = [pid for pid in proc.descendants(stepd.pid) if proc.is_python(pid)]
        job = job_of(below[0])
        assert sorted(ranks(job).values()) == sorted(below)
        assert job.job == f"pid-{stepd.pid}"


def test_jobs_are_found_by_run_id_or_its_beginning() -> None:
    env = {"RANK": "0", "TORCHELASTIC_RUN_ID": "named-a1"}
    with started((WAITING_CODE,), env=env) as (_starter, workers):
        assert [ranks(job) for job in jobs_named("named-a1")] == [{0: workers[0]}]
        assert [ranks(job) for job in jobs_named("named-")] == [{0: workers[0]}]
        assert jobs_named("amed-a1") == ()
        with started((WAITING_CODE,), env={**env, "TORCHELASTIC_RUN_ID": "named-a12"}):
            assert [ranks(job) for job in jobs_named("named-a1")] == [{0: workers[0]}]
            with pytest.raises(UsageError, match="several jobs begin with 'named-': named-a1, named-a12"):
                jobs_named("named-")


def test_two_launches_with_one_run_id_are_told_apart() -> None:
    env = {"RANK": "0", "TORCHELASTIC_RUN_ID": "same-id", "MASTER_ADDR": "::1"}
    with (
        started((WAITING_CODE,), env={**env, "MASTER_PORT": "1"}) as (first, _),
        started((WAITING_CODE,), env={**env, "MASTER_PORT": "2"}) as (second, _),
    ):
        names = {job.job for job in jobs_named("same-id")}
        assert names == {f"same-id (pid {first})", f"same-id (pid {second})"}


def test_what_may_not_be_read_is_said() -> None:
    with running(HIDDEN, env={"RANK": "0"}) as process:
        first_line(process)
        imports = "from rankscope.diag.discover import find_all, ranks_of_pids"
        code = "print(find_all().problems)\nprint(ranks_of_pids([int(sys.argv[1])]).problems[0])"
        every, one = seen_without_capabilities(imports, code, str(process.pid)).splitlines()
        assert "may not be read (another user's, or protected): run as that user or as root" in every
        assert one.startswith(f"Python process {process.pid} may not be read")


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("python", "train.py", "-m", "x"), "train"),
        (
            ("python", "-u", "-W", "ignore", "-m", "torch.distributed.launch", "train.py"),
            "torch.distributed.launch",
        ),
        (("python", "/usr/bin/torchrun", "train.py"), "torchrun"),
        (("python", "-c", "pass", "torchrun"), ""),
        (("python", "-m"), ""),
        (("python",), ""),
        ((), ""),
    ],
)
def test_the_program_of_a_command_line(command: tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


def test_a_process_that_ends_while_it_is_looked_at_is_left_out() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ""], env={**os.environ, "RANK": "0"}, start_new_session=True
    )
    table = proc.process_table()
    end_group(process)
    assert process.pid not in look_at([process.pid], table).named
