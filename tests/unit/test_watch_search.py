"""What a watch follows: the processes that were named, their restart, and nobody else of the same name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from tests.capture_factory import WAITING, end_group, first_line, running, waiting_process
from tests.jobs import until

from rankscope.agent.beside.search import Search
from rankscope.diag.discover import FoundJob

LAUNCHER = """
import json, os, subprocess, sys
while True:
    workers = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        workers.append(subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=env, stdout=subprocess.PIPE))
        workers[-1].stdout.readline()
    print(*(worker.pid for worker in workers), flush=True)
    sys.stdin.readline()
    for worker in workers:
        worker.kill()
        worker.wait()
        worker.stdout.close()
"""


class Launched:
    """A launcher that starts its two workers anew whenever it is told."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pids = self._announced()

    def _announced(self) -> list[int]:
        return [int(word) for word in first_line(self.process)]

    def restart(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        self.pids = self._announced()


@contextlib.contextmanager
def launched(
    folder: Path, port: int, *, program: str = "torchrun", run_id: str = "none"
) -> Generator[Launched]:
    script = folder / str(port) / program
    script.parent.mkdir()
    script.write_text(LAUNCHER)
    variables = {"TORCHELASTIC_RUN_ID": run_id, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, str(script), WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        yield Launched(process)
    finally:
        end_group(process)
        assert process.stdin is not None
        process.stdin.close()


def pids(jobs: Sequence[FoundJob]) -> list[int]:
    return [rank.pid for job in jobs for rank in job.ranks]


def test_another_job_without_a_name_is_not_taken_for_a_restart(tmp_path: Path) -> None:
    with launched(tmp_path, 1) as ours:
        search = Search(None, ours.pids)
        assert pids(search.jobs()) == ours.pids
        with launched(tmp_path, 2):
            assert pids(search.jobs()) == ours.pids
            end_group(ours.process)
            until(lambda: search.jobs() == (), "the end of the first", seconds=10)
            assert not search.may_come


def test_a_restart_is_followed_beside_other_jobs_without_a_name(tmp_path: Path) -> None:
    with launched(tmp_path, 1) as ours:
        search = Search(None, ours.pids)
        (first,) = search.jobs()
        with launched(tmp_path, 2):
            ours.restart()
            (again,) = search.jobs()
            assert pids([again]) == ours.pids
            assert again.job == first.job


def test_the_restart_of_one_of_two_jobs_is_followed_while_the_other_runs_on(tmp_path: Path) -> None:
    with launched(tmp_path, 1) as one, launched(tmp_path, 2) as other:
        search = Search(None, [*one.pids, *other.pids])
        search.jobs()
        one.restart()
        assert sorted(pids(search.jobs())) == sorted([*one.pids, *other.pids])


def test_a_script_may_start_several_jobs_side_by_side(tmp_path: Path) -> None:
    inner = "import json, os, subprocess, sys\nworkers = []\n"
    inner += "for port in ('1', '2'):\n"
    inner += "    env = {**os.environ, 'RANK': '0', 'MASTER_ADDR': '::1', 'MASTER_PORT': port}\n"
    inner += "    command = [sys.executable, '-c', sys.argv[1]]\n"
    inner += "    workers.append(subprocess.Popen(command, env=env, stdin=-1, stdout=-1))\n"
    inner += "    workers[-1].stdout.readline()\n"
    inner += "print(*(worker.pid for worker in workers), flush=True)\n"
    inner += "workers[0].wait(); print('ended', flush=True); input()"
    with running(inner, argv=(WAITING,)) as script:
        first, _second = (int(word) for word in first_line(script))
        search = Search(None, [first])
        assert pids(search.jobs()) == [first]
        os.kill(first, signal.SIGKILL)
        assert first_line(script) == ["ended"]
        assert search.jobs() == ()


def test_a_wrapper_that_lives_is_waited_for_and_never_a_rank() -> None:
    with subprocess.Popen(["sleep", "1000"]) as wrapper:
        search = Search(None, [wrapper.pid])
        assert (search.jobs(), search.may_come) == ((), True)
        wrapper.kill()
        until(lambda: not search.may_come, "the end of the wrapper", seconds=10)
        wrapper.wait(10)
    assert search.jobs() == ()


def test_a_python_program_without_torch_may_yet_start_ranks(tmp_path: Path) -> None:
    with waiting_process() as launcher:
        search = Search(None, [launcher.pid])
        assert (search.jobs(), search.may_come) == ((), True)
    with launched(tmp_path, 3, program="my_launcher.py") as later:
        search = Search(None, [later.process.pid])
        assert pids(search.jobs()) == later.pids
