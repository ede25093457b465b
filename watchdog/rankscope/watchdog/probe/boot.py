"""Starts the probe if this process is a rank, and says so in one line if it cannot.

A rank has RANK, a progress page and a slot in its environment, and is not the child of a rank: the first
process of a worker marks the environment with its pid, and whoever inherits the mark of another is a child
(a data-loader worker, a subprocess). A forked child has everything loaded, so it is switched off there.
How steps, groups and exceptions are seen, and how the worker answers others, is not known here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import MutableMapping
from typing import Final, NamedTuple

from rankscope.watchdog import environment
from rankscope.watchdog.nested import nested_rank, own_rank
from rankscope.watchdog.page import PageReader, SlotWriter
from rankscope.watchdog.probe import batches, imports, raising, steps
from rankscope.watchdog.probe.beat import Beat
from rankscope.watchdog.probe.faults import Faults
from rankscope.watchdog.probe.process_stat import is_alive, start_ticks
from rankscope.watchdog.probe.returned import Returned
from rankscope.watchdog.probe.worker_server import WorkerServer

_PR_SET_PTRACER: Final = 0x59616D61
"""prctl(2): "Yama" in ASCII."""
_YAMA_SCOPE: Final = "/proc/sys/kernel/yama/ptrace_scope"
_RESTRICTED: Final = b"1"
"""ptrace_scope 1: only ancestors may trace, unless the process names another tracer."""


class Claim(NamedTuple):
    """What the environment says of this rank.

    Attributes:
        rank: global rank.
        page: path of the progress page, slot the slot in it.
        agent_pid: 0 when unknown.
        timer_file: path of the named pipe, empty when unknown.
        answers: folder for answers to those who look, empty without one.
        server: whether torch's worker server may be started.
    """

    rank: int
    page: str
    slot: int
    agent_pid: int
    timer_file: str
    answers: str = ""
    server: bool = True


class Probe:
    """The running probe of this process."""

    def __init__(self, claim: Claim, writer: SlotWriter) -> None:
        self.rank = claim.rank
        self.writer = writer
        self.counter = steps.StepCounter(writer.step)
        self.hold = raising.Hold(
            writer, rank=claim.rank, agent_pid=claim.agent_pid, timer_file=claim.timer_file
        )
        self.batches = batches.Batches()
        self.returned = Returned(writer.returned)
        self.faults = Faults(claim.answers, start_ticks=start_ticks(os.getpid()))
        self.server = WorkerServer(claim.answers if claim.server else "")
        self.beat = Beat(
            writer, batches=self.batches, returned=self.returned, faults=self.faults, server=self.server
        )

    def start(self) -> None:
        """Hook in. Cannot be undone, only silenced."""
        os.register_at_fork(after_in_child=self._silence_in_child)
        imports.after_import(steps.OPTIMIZER_MODULE, self.counter.attach)
        imports.after_import(batches.LOADER_MODULE, self.batches.attach)
        raising.install(self.hold)
        self.returned.watch()
        self.faults.register()
        imports.after_import("ctypes", self.faults.learn)
        self.beat.start()

    def _silence_in_child(self) -> None:
        if self in _RUNNING:
            _RUNNING.remove(self)
        self.counter.silence()
        self.batches.silence()
        self.hold.silence()
        self.returned.silence()
        self.faults.silence()
        self.server.silence()
        self.beat.silence()


_RUNNING: Final[list[Probe]] = []


def running() -> Probe | None:
    """The probe of this process, None if there is none (no rank, or a child of one)."""
    return _RUNNING[0] if _RUNNING else None


def boot(environ: MutableMapping[str, str]) -> bool:
    """Start the probe if ``environ`` makes this process a rank. Never raises.

    Args:
        environ: ``os.environ``; gets the mark that tells children from the rank.

    Returns:
        Whether the probe runs now (also when it ran before).
    """
    if _RUNNING:
        return True
    try:
        claim = claim_of(environ, pid=os.getpid())
        return claim is not None and _start(claim, environ)
    except Exception as error:  # noqa: BLE001 - the edge to the user's process
        say(str(error) or repr(error))
        return False


def claim_of(environ: MutableMapping[str, str], *, pid: int) -> Claim | None:
    """What ``environ`` says of the process ``pid``; None when it is no rank.

    Raises:
        ValueError: a number is none.
    """
    nested = nested_rank(environ)
    rank = own_rank(environ)
    page = environ.get(environment.PAGE)
    slot = environ.get(environment.SLOT) if nested is None else str(nested.slot)
    if environ.get(environment.PROBE) == "0" or not rank or not page or not slot:
        return None
    if environ.get(environment.RANK_PID, str(pid)) != str(pid):
        return None
    return Claim(
        rank=int(rank),
        page=page,
        slot=int(slot),
        agent_pid=int(environ.get(environment.AGENT_PID) or 0),
        timer_file=environment.pipe_of(environ),
        answers=environ.get(environment.ANSWERS, ""),
        server=environ.get(environment.SERVER) != "0",
    )


def say(what: str) -> None:
    """Print the probe's one line; written to the descriptor, ``sys.stderr`` may be closed or replaced."""
    with contextlib.suppress(OSError):
        os.write(2, f"rankscope: {what}; training runs without progress reports\n".encode())


def _start(claim: Claim, environ: MutableMapping[str, str]) -> bool:
    if claim.agent_pid and not is_alive(claim.agent_pid):
        say(f"the agent (pid {claim.agent_pid}) is gone")
        return False
    try:
        writer = SlotWriter(claim.page, claim.slot)
    except FileNotFoundError:
        say(f"no progress page {claim.page}")
        return False
    pid = os.getpid()
    if is_taken(claim, pid):
        # Two pythons in one worker, such as a script and its log filter: the first one is the rank.
        writer.close()
        return False
    writer.claim(rank=claim.rank, pid=pid, start_ticks=start_ticks(pid))
    environ[environment.RANK_PID] = str(pid)
    let_trace(claim.agent_pid)
    probe = Probe(claim, writer)
    _RUNNING.append(probe)
    probe.start()
    return True


def is_taken(claim: Claim, pid: int) -> bool:
    """Whether another living process holds the slot; a pid that was reused is another process."""
    reader = PageReader(claim.page)
    try:
        view = reader.read(claim.slot)
    finally:
        reader.close()
    return view.pid not in {0, pid} and is_alive(view.pid) and start_ticks(view.pid) == view.start_ticks


def let_trace(tracer_pid: int, *, scope_file: str = _YAMA_SCOPE) -> bool:
    """Let the agent and its children (py-spy) trace this process, where Yama would not.

    Returns:
        Whether prctl was called: only under ``ptrace_scope`` 1, because importing ctypes costs milliseconds.
        Its result does not matter (EINVAL in a kernel without Yama).
    """
    try:
        with open(scope_file, "rb") as file:  # noqa: PTH123 - pathlib would be one more import
            scope = file.read().strip()
    except OSError:
        return False
    if scope != _RESTRICTED or tracer_pid <= 0:
        return False
    # A Python built without ctypes reports progress all the same.
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer_pid), 0, 0, 0)
    return True
