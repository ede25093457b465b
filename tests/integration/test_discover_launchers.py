"""The ranks of jobs that others launched, each with its launcher as it is used: two ranks, real processes.

The truth is what each worker wrote of itself: its pid under its rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.jobs import until

from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, find_all, jobs_named, ranks_of_pids

WORKER = Path(__file__).parent / "programs" / "launched_worker.py"
BIN = Path(sys.executable).parent
RANKS = 2


class Launched:
    """A launcher and what its workers say of themselves."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process

    def announced(self) -> dict[int, int]:
        """Pid of each rank that is up."""
        return {int(path.name): int(path.read_text()) for path in self.folder.glob("[0-9]")}

    def is_up(self) -> bool:
        assert self.process.poll() is None, (self.folder / "output").read_text()
        return len(self.announced()) == RANKS

    def jobs(self) -> list[FoundJob]:
        """The jobs found whose ranks run below the launcher."""
        below = set(proc.descendants(self.process.pid))
        return [job for job in find_all().jobs if below.intersection(rank.pid for rank in job.ranks)]

    def job(self) -> FoundJob:
        (job,) = self.jobs()
        return job


@contextlib.contextmanager
def launched(
    folder: Path, command: Sequence[str], env: Mapping[str, str] | None = None
) -> Generator[Launched]:
    """A launch whose workers are all up; ended with everything below it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
    environ = {
        **inherited,
        "OMP_NUM_THREADS": "1",
        "ANNOUNCE_TO": str(folder),
        "PYTHONPATH": str(WORKER.parent),
        **(env or {}),
    }
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )
    try:
        found = Launched(folder, process)
        until(found.is_up, "the workers to be up", seconds=90)
        yield found
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and whatever it started, workers with a session of their own too."""
    below = {pid: proc.start_ticks(pid) for pid in proc.descendants(process.pid)}
    process.kill()
    for pid, started in below.items():
        if proc.start_ticks(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait(20)


def ranks(job: FoundJob) -> dict[int, int]:
    return {rank.rank: rank.pid for rank in job.ranks}


TORCHRUN = (str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2")
TORCH_LAUNCH = (sys.executable, "-W", "ignore", "-m", "torch.distributed.launch", "--nproc-per-node=2")
ACCELERATE = (
    *(str(BIN / "accelerate"), "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"),
    *("--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"),
)
MPIRUN = (str(BIN / "mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2")
IN_A_SHELL = ("sh", "-c", f"{sys.executable} {WORKER}; true")
LAUNCHES = {
    "torchrun": (*TORCHRUN, str(WORKER)),
    "torchrun -m": (
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"),
        *("-m", "launched_worker"),
    ),
    "torchrun --no-python": (*TORCHRUN, "--no-python", *IN_A_SHELL),
    "torch.distributed.launch": (*TORCH_LAUNCH, "--master-port=0", str(WORKER)),
    "torch.distributed.launch --use-env": (*TORCH_LAUNCH, "--use-env", "--master-port=0", str(WORKER)),
    "accelerate launch": (*ACCELERATE, str(WORKER)),
    "mpirun": (*MPIRUN, sys.executable, str(WORKER)),
    "mpirun sh": (*MPIRUN, *IN_A_SHELL),
}


@pytest.mark.parametrize("launcher", LAUNCHES)
def test_the_ranks_of_a_launcher_are_found(launcher: str, tmp_path: Path) -> None:
    with launched(tmp_path, LAUNCHES[launcher]) as job:
        assert ranks(job.job()) == job.announced()
        assert job.job().world_size == RANKS
        assert job.job().notes == ()
        by_launcher = ranks_of_pids([job.process.pid])
        assert by_launcher.problems == ()
        assert [ranks(found) for found in by_launcher.jobs] == [job.announced()]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_functions_of_an_elastic_launch_are_found_by_run_id(method: str, tmp_path: Path) -> None:
    with launched(tmp_path, [sys.executable, str(WORKER), "--launch", method]) as job:
        assert [ranks(found) for found in jobs_named("launched-function")] == [job.announced()]
        assert [ranks(found) for found in jobs_named("launched-fun")] == [job.announced()]
        assert jobs_named("launched-functional") == ()
        assert job.job().run_id == "launched-function"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_functions_that_are_told_their_rank_by_argument_are_found_on_their_stacks(
    method: str, tmp_path: Path
) -> None:
    with launched(tmp_path, [sys.executable, str(WORKER), "--start", method]) as job:
        assert ranks(job.job()) == job.announced()
        assert job.job().job == f"pid-{job.process.pid}"
        assert job.job().world_size == RANKS
        assert job.job().notes == ("ranks from the variable rank of train on their stacks",)
        (one,) = ranks_of_pids([job.announced()[1]]).jobs
        assert ranks(one) == {1: job.announced()[1]}


def test_functions_that_set_their_rank_themselves_are_found_by_it(tmp_path: Path) -> None:
    with launched(tmp_path, [sys.executable, str(WORKER), "--start", "fork", "--env"]) as job:
        assert ranks(job.job()) == job.announced()
        assert job.job().notes == ()
