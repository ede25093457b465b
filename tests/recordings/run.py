"""Runs one job of the plan under ``diag run`` to its end; its records lie where a user's would.

The job's program is copied, without the marks of the fault matrix that say where it gets stuck, and the job
gets the host name of its node in a UTS namespace of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.jobs import Job
from tests.recordings.plan import Recording

from rankscope.diag.model import Verdict
from rankscope.diag.store.incidents import incident_folders
from rankscope.diag.store.job import JobFolder

_MARK: Final = re.compile(r"[ \t]*# stuck here.*")
_NAMED: Final = 'hostname "$0" && exec "$@"'
_SECONDS: Final = 300.0
"""The longest takes 90 s on a quiet machine."""
_LOOPBACK: Final = "--local-addr=127.0.0.1"
_INTERFACE: Final = {"GLOO_SOCKET_IFNAME": "lo"}
"""Nobody resolves a host name that exists in a namespace only."""


def run_recording(recording: Recording, folder: Path, *, is_named: bool = True) -> JobFolder:
    """Run a job to its end.

    Args:
        recording: which.
        folder: for all that it writes; is made.
        is_named: whether it runs under its node's name, else under that of this host. Needs ``unshare``.

    Returns:
        Its records.

    Raises:
        RuntimeError: it ended otherwise than it should, or not in time, or found something else.
    """
    folder.mkdir(parents=True)
    script = folder / "train.py"
    script.write_text(_MARK.sub("", recording.program.read_text()))
    job = Job(folder, recording.run_id)
    job.start([*_place(recording.node, is_named=is_named), *_command(recording, script)], _INTERFACE)
    assert job.process is not None
    try:
        code = job.process.wait(_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{recording.run_id}: no end within {_SECONDS:.0f} s") from error
    finally:
        job.end()
    found = tuple(one for one, _again in groupby(_diagnoses(job)))
    if (code, found) != (recording.exit_code, recording.found):
        raise RuntimeError(
            f"{recording.run_id}: exit code {code} and {found or 'no incident'}; "
            f"{recording.exit_code} and {recording.found} expected\n{job.stderr[-4000:]}"
        )
    return job.records


def _place(node: str, *, is_named: bool) -> list[str]:
    if not is_named:
        return []
    own_users = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_users, "--uts", "sh", "-c", _NAMED, node]


def _command(recording: Recording, script: Path) -> list[str]:
    arguments = [argument.format(folder=script.parent) for argument in recording.arguments]
    return [
        *(sys.executable, "-m", "rankscope.agent"),
        *(f"--nproc-per-node={recording.ranks}", f"--rdzv-id={recording.run_id}", _LOOPBACK),
        *recording.flags,
        str(script),
        *arguments,
    ]


def _diagnoses(job: Job) -> Iterator[tuple[Verdict, tuple[int, ...]]]:
    for incident in incident_folders(job.records.incidents):
        if (incident.path / "diagnosis.json").exists():
            diagnosis = incident.diagnosis()
            yield diagnosis.verdict, diagnosis.culprits
