"""Readers: bytes of one dump format to the nouns of the model, one format a module.

A reader never sees a process, a path or a clock, and never raises on any bytes: it returns what it
could read and says what it could not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.diag.model import ExitFacts, FlightRecord, Frame, ThreadStack

StackSource = Literal["py-spy", "pystack", "faulthandler", "gdb", "printed", "traceback"]
"""Where stacks come from: a tool, the program itself, the traceback of an interrupted process."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader got out of a dump of one process.

    Attributes:
        threads: the threads it could read, in the order of the dump.
        problems: one line for each thing it could not read, empty when all was understood.
    """

    threads: tuple[ThreadStack, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StackDump:
    """The stacks of one process at one time, found somewhere in an input.

    Attributes:
        source: the tool that wrote them.
        threads: in the order of the dump; leaf first each, whatever order the tool writes.
        pid: process id, 0 when the dump does not tell it.
        rank: global rank, when what stands before its lines says so (``[rank3]:``), else ``None``.
        title: command line or process title as the dump gives it, ``""`` for none.
        line: number of its first line in the input, from 1.
        is_native: whether C++ frames were asked for; has_variables whether local variables were.
        trouble: why the tool could not read the process, ``""`` when it could.
        parent: pid of its parent, when the dump tells it (py-spy's ``Parent Process``), else 0.
        channel: what stood before each of its lines, without dates (``[default2]:``), ``""`` for nothing.
    """

    source: StackSource
    threads: tuple[ThreadStack, ...] = ()
    pid: int = 0
    rank: int | None = None
    title: str = ""
    line: int = 0
    is_native: bool = False
    has_variables: bool = False
    trouble: str = ""
    parent: int = 0
    channel: str = ""


FactKind = Literal[
    "watchdog_timeout",  # NCCL's watchdog: the collective that ran out of time, and the group's status
    "watchdog_status",  # the group's status on a rank that was told that another ran out of time
    "watchdog_stuck",  # "watchdog got stuck for N seconds"
    "stalled",  # Horovod's stall inspector: a rank that did not submit what others wait for
    "mismatch",  # CollectiveFingerPrint: two ranks in different collectives
    "connection_closed",  # gloo, NCCL, TCPStore: a peer went away
    "wait_timeout",  # gloo or the store: waited in vain
    "failure",  # torchrun's summary: a rank and how it ended
    "root_failure",  # torchrun's "Root Cause"
    "left",  # torch's warning at the end of a program that did not destroy its process group
    "signalled",  # torchrun sent a signal to a survivor
    "task_ended",  # srun: a task and how it ended
    "cancelled",  # Slurm or the launcher: the whole job was ended from outside
    "oom_kill",  # Slurm: some process was killed for its memory
    "crashed",  # "Fatal Python error": the signal that ended the process, or what made it end itself
    "child_crashed",  # the same of a process that a rank started
    "raised",  # last line of a traceback
    "interrupted",  # the same of an exception that a signal from outside raised: where it stood
    "handled",  # the same, and its writer goes on with its steps
    "restarted",  # the launcher starts the workers again: what is before it is history
    "earlier",  # how a worker of an attempt before that ended
    "flight_recorder",  # torch's own analysis: "Culprit rank R"
]


@dataclass(frozen=True, slots=True)
class LogFact:
    """What one line (or a few) of a log says of a job.

    Attributes:
        kind: what sort of line.
        text: the line without what stands before it, at most 500 characters.
        line: its number in the input, from 1.
        rank: global rank it is about, ``None`` when it does not say.
        pid: process it is about, 0 when it does not say.
        time: unix seconds that stand on the line, ``None`` without a date.
        exit: how a process ended (``failure``, ``root_failure``).
        record: the collective and the group's status (``watchdog_timeout``, ``watchdog_status``,
            ``mismatch``): an entry for what the rank is in, a group for what it has called and completed.
        other: the second rank of a ``mismatch`` and what it is in.
        seconds: how long was waited, ``None`` when not said.
        channel: what stood before the line, as of a dump.
        frames: the stack of an ``interrupted`` process, leaf first.
        task: Slurm's number of a task (``task_ended``), node its host.
        local_rank: number of the process on its node (``failure``), ``None`` when not said.
    """

    kind: FactKind
    text: str
    line: int = 0
    rank: int | None = None
    pid: int = 0
    time: float | None = None
    exit: ExitFacts | None = None
    record: FlightRecord | None = None
    other: tuple[int, FlightRecord] | None = None
    seconds: float | None = None
    channel: str = ""
    local_rank: int | None = None
    task: int | None = None
    node: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything found in one input: a file, or standard input.

    Attributes:
        dumps: stacks, in the order of the input.
        records: flight records.
        facts: what log lines say.
        problems: what was not understood or was cut off, with how often: silence about lost input is a fault.
        lines: lines read; size_bytes bytes read, after decompression.
        ranks: global ranks that stand before its lines, as far as these were looked at.
    """

    dumps: tuple[StackDump, ...] = ()
    records: tuple[FlightRecord, ...] = ()
    facts: tuple[LogFact, ...] = ()
    problems: dict[str, int] = field(default_factory=dict[str, int])
    lines: int = 0
    size_bytes: int = 0
    ranks: frozenset[int] = frozenset()
