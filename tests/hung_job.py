"""One real hung job for the tests that look at jobs from outside: plain torchrun, gloo, one rank stuck."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.capture_factory import state_of
from tests.jobs import DEADLINE, Job, until

from rankscope.diag import proc
from rankscope.diag.discover.rank_variables import identify

PROGRAM = Path(__file__).parent / "integration" / "programs" / "hung_job.py"
STUCK = 2
STUCK_LINE = next(
    at
    for at, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if line.strip() == "return pipe.read_bytes()"
)


class HungJob(Job):
    """A job whose ranks stand still; ``pids`` are theirs, by rank."""

    pids: dict[int, int]

    def wait_until_hung(self, ranks: int) -> None:
        waiting = [self.folder / f"waiting-{rank}" for rank in range(ranks) if rank != STUCK]
        until(lambda: all(path.exists() for path in (*waiting, self.folder / "stuck")), "the ranks to hang")
        self.pids = {}
        for pid in proc.descendants(self.pid):
            identity = identify(proc.environ(pid) or {})
            if identity is not None:
                self.pids[identity.rank] = pid
        assert sorted(self.pids) == list(range(ranks))
        until(lambda: all(state_of(pid) == "S" for pid in self.pids.values()), "the ranks to sleep")


@contextmanager
def hung_job(folder: Path, *, ranks: int) -> Generator[HungJob]:
    """The job, hung when handed out; its output is in ``stdout`` and ``stderr`` of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "shard")
    job = HungJob(folder, f"hung-{os.getpid()}-{folder.name}")
    words = [f"--nproc-per-node={ranks}", f"--rdzv-id={job.run_id}", "--rdzv-backend=c10d"]
    words += ["--rdzv-endpoint=localhost:0", str(PROGRAM), str(folder), str(STUCK)]
    job.start([sys.executable, "-m", "torch.distributed.run", *words])
    try:
        job.wait_until_hung(ranks)
        yield job
    finally:
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
            job.process.wait(DEADLINE)
