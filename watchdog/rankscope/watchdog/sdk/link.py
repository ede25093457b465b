"""Finds out what this process is to the agent: a rank with a slot and a pipe, or nothing, and why.

A rank with a running probe shares the probe's slot. Without one (``RANKSCOPE_PROBE=0``, an interpreter that
leaves ``PYTHONPATH`` out) the slot is opened and claimed as the probe does it. A child of a rank gets
nothing: what it says would count as the rank's. A subprocess that cannot be told from a rank under a wrapper
is one until its ancestor speaks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

from rankscope.watchdog import environment
from rankscope.watchdog.nested import own_rank
from rankscope.watchdog.page import PageError, SlotWriter
from rankscope.watchdog.probe import boot
from rankscope.watchdog.probe.process_stat import is_alive, parent_pid, start_ticks
from rankscope.watchdog.sdk.edge import is_ours
from rankscope.watchdog.sdk.pipe_line import EventPipe

CHILD: Final = "this process is a child of a rank, not a rank"
NO_AGENT: Final = "no agent of Rankscope runs this process"
_MAX_DEPTH: Final = 64
"""Generations looked back at most; a process that is seen while it goes has no parent (0)."""
_LATE: Final = ("RANK", environment.RANK_PID)


@dataclass(frozen=True, slots=True)
class Link:
    """What this process is to the agent.

    Attributes:
        rank: global rank, -1 for none.
        writer: its slot, ``None`` when there is none.
        pipe: where its events go.
        reason: why there is no slot, ``""`` when there is one.
        is_held: whether another process holds the slot now, which may end, or turn out to be our child.
        is_first_come: whether it is a rank only for having come first: it may be the child of a rank that
            has not spoken yet, and takes the slot when it does.
    """

    rank: int = -1
    writer: SlotWriter | None = None
    pipe: EventPipe | None = None
    reason: str = ""
    is_held: bool = False
    is_first_come: bool = False


def late_variables(environ: MutableMapping[str, str]) -> tuple[str | None, ...]:
    """What is set late in workers that are functions, by torch's wrapper and then by the probe.

    While it stays the same, looking for a link again gives the same answer.
    """
    return tuple(environ.get(name) for name in _LATE)


def find_link(environ: MutableMapping[str, str], *, forked: bool) -> Link:
    """Find this process's link.

    Args:
        environ: ``os.environ``; gets the probe's mark when a slot is claimed here.
        forked: whether the process was forked from one that had this module loaded.
    """
    probe = boot.running()
    pipe = EventPipe(environment.pipe_of(environ))
    if probe is not None:
        return Link(probe.rank, probe.writer, pipe)
    rank = own_rank(environ)
    if not environ.get(environment.AGENT_PID) or not rank:
        return Link(reason=NO_AGENT)
    try:
        return _without_probe(environ, int(rank), pipe, forked=forked)
    except (OSError, IndexError) as error:
        if not is_ours(error):
            raise
        what = f"no progress page ({error if isinstance(error, PageError) else type(error).__name__})"
        return Link(int(rank), None, pipe, what)
    except ValueError as error:
        return Link(reason=f"the agent's variables cannot be read ({error})")


def _without_probe(environ: MutableMapping[str, str], rank: int, pipe: EventPipe, *, forked: bool) -> Link:
    pid, agent_pid = os.getpid(), int(environ[environment.AGENT_PID])
    if environ.get(environment.RANK_PID, str(pid)) != str(pid) or _is_child(agent_pid, forked=forked):
        return Link(reason=CHILD)
    if not is_alive(agent_pid):
        return Link(reason=f"the agent (pid {agent_pid}) is gone")
    # The switch is the probe's: whoever calls the SDK wants to be heard.
    asked = {name: value for name, value in environ.items() if name != environment.PROBE}
    claim = boot.claim_of(asked, pid=pid)
    if claim is None:
        return Link(rank, None, pipe, "the agent has no progress page")
    writer = SlotWriter(claim.page, claim.slot)
    if boot.is_taken(claim, pid) and not _is_below(writer.holder(), pid):
        writer.close()
        return Link(reason=CHILD, is_held=True)
    writer.claim(rank=rank, pid=pid, start_ticks=start_ticks(pid))
    environ[environment.RANK_PID] = str(pid)
    return Link(rank, writer, pipe, is_first_come=os.getppid() != agent_pid)


def _is_below(pid: int, ancestor: int) -> bool:
    """Whether the process ``pid`` descends from ``ancestor``."""
    for _ in range(_MAX_DEPTH):
        if pid <= 1:
            return False
        pid = parent_pid(pid)
        if pid == ancestor:
            return True
    return False


def _is_child(agent_pid: int, *, forked: bool) -> bool:
    """Whether this process was forked or spawned by a rank that has not left its mark (yet)."""
    if os.getppid() == agent_pid:
        return False
    processes = sys.modules.get("multiprocessing.process")
    parent = processes.parent_process() if processes is not None else None
    if parent is None:
        return forked or _is_being_spawned()
    return bool(parent.pid != agent_pid)


def _is_being_spawned() -> bool:
    """Whether multiprocessing is just importing the script into a new process, which knows no parent yet."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and bool(getattr(processes.current_process(), "_inheriting", False))


def is_helper_process(environ: MutableMapping[str, str]) -> bool:
    """Whether this is a process that multiprocessing started and that is no rank of any launcher.

    Loader workers are daemons, ranks are not; torch's workers that are functions learn their rank late.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or (processes.parent_process() is None and not _is_being_spawned()):
        return False
    return bool(processes.current_process().daemon) or not environ.get("RANK")
