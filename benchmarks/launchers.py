"""One script under two launchers, ``diag run`` and torchrun: same flags, same environment, same interpreter.

Only the module that is run differs, so that what differs between the jobs is ours. Without an address on the
command line both meet over a store of their own (c10d); with ``--master-port`` torchrun alone would not, and
spares two threads. Measures nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final, Literal

from tests.jobs import DEADLINE, Job

Launcher = Literal["ours", "torchrun"]
MODULES: Final[dict[Launcher, str]] = {"ours": "rankscope.agent", "torchrun": "torch.distributed.run"}


@contextlib.contextmanager
def launched(
    launcher: Launcher, folder: Path, *, ranks: int, script: Sequence[str | os.PathLike[str]]
) -> Generator[Job]:
    """A job of ``ranks`` workers that run ``script`` with its arguments; ended at the end whatever happens.

    Args:
        launcher: whose.
        folder: for its records and output; made.
        ranks: workers on this node, the only one.
        script: a Python file and what follows it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(folder, f"bench-{os.getpid()}-{folder.name}")
    flags = [f"--nproc-per-node={ranks}", f"--rdzv-id={job.run_id}"]
    job.start([sys.executable, "-m", MODULES[launcher], *flags, *map(str, script)])
    try:
        yield job
    finally:
        # Both launchers end their workers on SIGTERM.
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(DEADLINE)
        job.end()
