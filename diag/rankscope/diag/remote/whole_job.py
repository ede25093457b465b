"""``diag analyze`` of a job on several hosts: one of its agents has all of them look."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from rankscope.diag import proc
from rankscope.diag.chosen import NamedJob
from rankscope.diag.errors import RankscopeError
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.wanted import Wanted
from rankscope.diag.model import Diagnosis
from rankscope.diag.remote.judged import MOVING, agent_at, local_flags, looked_at
from rankscope.diag.store.incidents import IncidentFolder, incident_folders
from rankscope.diag.store.job import AgentFile, JobFolder

_REACH_SECONDS: Final = 2.0
"""For an agent to say what it does: of some that no longer live, no more is known than their files."""
_MOST_ASKED: Final = 3
_TOKEN: Final = "token"  # noqa: S105 - the name of a file


def judge_whole_job(found: NamedJob, wanted: Wanted) -> Sequence[Judged] | None:
    """The diagnosis of all nodes of a job, ``None`` where this host has all of it, or no agent answers.

    Args:
        found: what the user named.
        wanted: what, and how; ways to look that an agent does not have are for this host alone.
    """
    folder = found.folder
    if folder is None or not _is_elsewhere_too(found) or local_flags(wanted):
        return None
    token = _token_of(folder, wanted)
    if token is None:
        return None
    trouble: list[str] = []
    for agent in _in_order(folder)[:_MOST_ASKED]:
        try:
            client = agent_at(agent.api, token, timeout=_REACH_SECONDS)
            if client is None:
                continue
            diagnosis = looked_at(client, wanted, job=folder.run_id)
        except RankscopeError as error:
            trouble.append(str(error))
            continue
        return [Judged(diagnosis, incident=_stored(folder, diagnosis), folder=folder)]
    if trouble and found.jobs:
        wanted.say(f"only the ranks of this host are looked at: {'; '.join(trouble)}")
    return None


def _stored(folder: JobFolder, diagnosis: Diagnosis) -> IncidentFolder | None:
    """Where it lies with its looks, if it does: they may be on the node that led alone."""
    found = [one for one in incident_folders(folder.incidents) if one.id == diagnosis.incident]
    return found[0] if found else None


def _is_elsewhere_too(found: NamedJob) -> bool:
    """Whether ranks of a job that our agents launched are on other hosts."""
    if not found.jobs:
        return True
    (job,) = found.jobs if len(found.jobs) == 1 else (None,)
    return job is not None and job.job_dir is not None and job.world_size > len(job.ranks)


def _in_order(folder: JobFolder) -> list[AgentFile]:
    """The agents that may be asked: those that live on this host first.

    Of another host's agent an address of loopback is somebody else's here.
    """
    able = [one for one in folder.agents() if one.api and not one.beside and one.phase in MOVING]
    here = [one for one in able if proc.start_ticks(one.pid) == one.start_ticks]
    return here + [one for one in able if one not in here and not _is_loopback(one.api)]


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token_of(folder: JobFolder, wanted: Wanted) -> str | None:
    """The file with the job's token, ``None`` where there is none that was made for this user alone.

    A folder may come from anybody: no file that is named in it is read, and no other token is sent to where
    it says that agents are.
    """
    if wanted.token_file is not None:
        return wanted.token_file
    path = folder.path / _TOKEN
    try:
        found = path.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return str(path) if is_ours else None
