"""The root of real failures: real processes that end in different orders, watched as by the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.failures_factory import root_failure
from tests.jobs import until

from rankscope.agent.failures import Failure, WorkerEnd
from rankscope.agent.failures.error_file import read_error_file
from rankscope.agent.failures.root import SAME_INSTANT
from rankscope.agent.workers.exits import ExitWatch
from rankscope.agent.workers.model import WorkerRef

FAILING = Path(__file__).parent / "programs" / "failing_worker.py"
WAITS = "import sys\nsys.stdin.readline()\n"


class Workers:
    """Real workers with a log and an error file each; ``ends`` are what the agent would know of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._wake, self._waker = os.pipe()
        self._watch = ExitWatch(self._wake)
        self._at: dict[int, float] = {}

    def start(self, commands: Sequence[Sequence[str]], env: Mapping[str, str] | None = None) -> None:
        for rank, command in enumerate(commands):
            own = self.folder / str(rank)
            own.mkdir(parents=True)
            given = {
                **os.environ,
                **(env or {}),
                "RANK": str(rank),
                "WORLD_SIZE": str(len(commands)),
                "OMP_NUM_THREADS": "1",
                "TORCHELASTIC_ERROR_FILE": str(own / "error.json"),
            }
            with (own / "stderr.log").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=given
                )
            self.processes.append(process)
        self._watch.watch(WorkerRef(rank, rank, one.pid, 0) for rank, one in enumerate(self.processes))

    def tell(self, rank: int) -> None:
        """Let a worker that waits go on."""
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(b"\n")
        stdin.flush()

    def wait_for(self, *ranks: int) -> None:
        """See the ends of these ranks."""

        def gone() -> bool:
            for rank in self._watch.poll(0.02):
                self._at[rank] = time.time()
            return all(rank in self._at for rank in ranks)

        until(gone, f"the ends of ranks {ranks}")

    def wait_past(self, rank: int) -> None:
        """Until another end cannot be taken for one of the same instant."""
        until(lambda: time.time() - self._at[rank] > 2 * SAME_INSTANT, "the instant to be over")

    @property
    def ends(self) -> list[WorkerEnd]:
        return [self._end(rank) for rank in sorted(self._at)]

    def _end(self, rank: int) -> WorkerEnd:
        own = self.folder / str(rank)
        return WorkerEnd(
            rank=rank,
            local_rank=rank,
            node="node-a",
            exit_code=self.processes[rank].wait(10),
            at=self._at[rank],
            error_file=str(own / "error.json"),
            logs=(str(own / "stderr.log"), str(own / "stdout.log")),
        )

    def root(self) -> Failure:
        failure = root_failure(self.ends)
        assert failure is not None
        return failure

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._watch.close()
        os.close(self._wake)
        os.close(self._waker)


@contextmanager
def running(folder: Path) -> Generator[Workers, None, None]:
    workers = Workers(folder)
    try:
        yield workers
    finally:
        workers.close()


def python(program: str) -> list[str]:
    return [sys.executable, "-S", "-c", program]


def test_a_killed_rank_of_a_gloo_job_is_the_root(tmp_path: Path) -> None:
    with running(tmp_path / "logs") as workers:
        workers.start([[sys.executable, str(FAILING), "kill", str(tmp_path)]] * 2)
        workers.wait_for(0, 1)
        failure = workers.root()
    assert (failure.rank, failure.message, failure.exit_code) == (1, "killed by SIGKILL", -9)
    assert (failure.source, failure.retryable, failure.tied_with) == ("exit code", False, ())
    assert failure.why_first == "rank 0 lost its connections or waited in vain"


def test_a_rank_that_raises_and_ends_after_its_victims_is_the_root(tmp_path: Path) -> None:
    with running(tmp_path / "logs") as workers:
        workers.start([[sys.executable, str(FAILING), "raise", str(tmp_path)]] * 2)
        workers.wait_for(0)
        victim = root_failure(workers.ends)
        (tmp_path / "release").touch()
        workers.wait_for(1)
        failure = workers.root()
    assert victim is not None
    assert victim.retryable, victim.because
    assert victim.why_first == "no failure that explains it is known"
    assert (failure.rank, failure.message, failure.source) == (1, "ValueError: bad sample 17", "error file")
    assert failure.frame is not None
    assert failure.frame.function == "fail"
    assert not failure.retryable
    # The error file has whole seconds; its time of change has the fraction.
    assert failure.at < next(end.at for end in workers.ends if end.rank == 0)


ORDERS = [
    # (what each rank does once it is told, in which order they are told, the root)
    ({0: "raise ValueError('a')", 1: "raise ValueError('b')"}, (1, 0), 1),
    ({0: "raise ValueError('a')", 1: "raise SystemExit(3)"}, (1, 0), 1),
    ({0: "raise ConnectionResetError(104, 'Connection reset by peer')", 1: "raise SystemExit(3)"}, (0, 1), 1),
    (
        {0: "raise ConnectionResetError(104, 'Connection reset by peer')", 1: "import os; os.abort()"},
        (0, 1),
        1,
    ),
    ({0: "raise SystemExit(0)", 1: "raise SystemExit(3)"}, (0, 1), 1),
    ({0: "import os; os.kill(os.getpid(), 15)", 1: "raise SystemExit(3)"}, (0, 1), 1),
    ({0: "import os; os.kill(os.getpid(), 15)", 1: "import os; os.kill(os.getpid(), 9)"}, (0, 1), 1),
]


@pytest.mark.parametrize(("programs", "order", "root"), ORDERS)
def test_the_root_of_ends_in_any_order(
    tmp_path: Path, programs: dict[int, str], order: tuple[int, ...], root: int
) -> None:
    with running(tmp_path) as workers:
        workers.start([python(WAITS + programs[rank]) for rank in sorted(programs)])
        for rank in order:
            workers.tell(rank)
            workers.wait_for(rank)
            workers.wait_past(rank)
        assert workers.root().rank == root


def test_what_the_agent_stopped_is_no_failure(tmp_path: Path) -> None:
    with running(tmp_path) as workers:
        workers.start([python(WAITS), python(WAITS)])
        stopped_at = time.time()
        for process in workers.processes:
            process.send_signal(signal.SIGTERM)
        workers.wait_for(0, 1)
        ends = workers.ends
    assert root_failure([replace(end, stopped_at=stopped_at) for end in ends]) is None
    failure = root_failure(ends)
    assert failure is not None
    assert (failure.message, failure.retryable) == ("ended by SIGTERM", True)


ROTATES = """
import logging, logging.handlers, sys
logger = logging.getLogger()
handler = logging.handlers.RotatingFileHandler(sys.argv[1], maxBytes=400, backupCount=3)
handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
logger.addHandler(handler)
for step in range(200):
    logger.warning("step %d", step)
try:
    raise OSError(116, "Stale file handle")
except OSError:
    logger.exception("giving up")
for step in range(BEHIND):
    logger.warning("closing %d", step)
sys.exit(9)
"""


@pytest.mark.parametrize("behind", [0, 5])
def test_a_log_that_python_itself_rotates_is_read(tmp_path: Path, behind: int) -> None:
    log = tmp_path / "rank.log"
    program = ROTATES.replace("BEHIND", str(behind))
    with running(tmp_path / "logs") as workers:
        workers.start([[sys.executable, "-S", "-c", program, str(log)]])
        workers.wait_for(0)
        (end,) = workers.ends
    failure = root_failure([replace(end, logs=(str(log),))])
    assert failure is not None
    assert (failure.message, failure.source) == ("OSError: [Errno 116] Stale file handle", "log")
    assert (failure.retryable, failure.because) == (
        True,
        "a fault of a shared file system (Stale file handle)",
    )


def test_a_share_that_hangs_costs_no_more_than_the_time_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file system here hangs, so the one call that would is made to."""
    released = threading.Event()

    def hangs(path: str) -> object:
        if "hangs" in path:
            released.wait(60)
        return read_error_file(path)

    monkeypatch.setattr("rankscope.agent.failures.reading.read_error_file", hangs)
    log = tmp_path / "stderr.log"
    log.write_text("Traceback (most recent call last):\nValueError: bad\n")
    first = WorkerEnd(0, 0, "n", 1, 1.0, logs=(str(log),))
    stuck = WorkerEnd(1, 1, "n", 3, 2.0, error_file="/hangs", logs=(str(log),))
    began = time.monotonic()
    failure = root_failure([stuck, first], timeout=0.2)
    took = time.monotonic() - began
    released.set()
    for thread in threading.enumerate():
        if thread.name == "rankscope-failures":
            thread.join(10)
    assert failure is not None
    assert (failure.rank, failure.message) == (0, "ValueError: bad")
    assert took < 30
