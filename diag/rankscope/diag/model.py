"""The nouns of Rankscope, one meaning each (ARCHITECTURE.md, "Nouns").

Frozen ``msgspec`` structs, decoded and validated at the edges and stored as they are. Every stored
file carries ``schema``; fields may be added (with a default), none renamed or removed. Trees of plain values
are never part of a cycle: the garbage collector need not go through them (``gc=False``).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA: Final = 1

Verdict = Literal[
    "Healthy", "RankCommHang", "RankNonCommHang", "RankCommSlow", "RankNonCommSlow", "Exited", "Unknown"
]
SLOW: Final[tuple[Verdict, ...]] = ("RankCommSlow", "RankNonCommSlow")
"""Verdicts of a job that moves, slower than it might."""
RankClass = Literal["RankCommHang", "RankNonCommHang", "RankCommSlow", "RankNonCommSlow"]
Kind = Literal[
    "data_loading",
    "checkpoint",
    "lock",
    "compile",
    "startup",
    "store_wait",
    "exit",
    "python_loop",
    "native_gil",
    "user_code",
    "child_process",
    "storage",
    "network",
    "desync",
    "order_deadlock",
    "frozen",
    "dead",
    "none",
]
Confidence = Literal["high", "medium", "low"]
Severity = Literal["error", "warning", "info", "none"]
RankState = Literal["running", "suspected", "hung", "waiting", "slow", "exited", "unobserved"]
Role = Literal["culprit", "victim", "bystander"]
Action = Literal["log", "notify", "hold", "restart", "isolate", "fail"]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One call on a stack.

    Attributes:
        function: function or symbol name as the tool gave it.
        file: source file, as full as the tool knows it; ``""`` when unknown.
        line: line number, 0 when unknown (native frames).
        kind: ``python`` or ``native``.
        short_file: the file as it is shown (``torch/distributed/distributed_c10d.py``), ``""`` to show
            ``file``.
        source: text of the line as the dump gave it (pystack, gdb's ``py-bt``), ``""`` when it did not.
    """

    function: str
    file: str
    line: int = 0
    kind: Literal["python", "native"] = "python"
    short_file: str = ""
    source: str = ""


class FrameVariables(msgspec.Struct, frozen=True, gc=False):
    """The local variables and arguments of one frame, as the tool printed them.

    Attributes:
        frame: index of the frame in its thread's ``frames``.
        values: name and printed value, in the order of the dump.
    """

    frame: int
    values: tuple[tuple[str, str], ...]


class ThreadStack(msgspec.Struct, frozen=True, gc=False):
    """One thread of one process at one time; ``frames`` are leaf first.

    Attributes:
        thread_id: OS thread id, 0 when the tool did not know it.
        name: Python's thread name, else the kernel's, ``None`` when unknown.
        frames: leaf first.
        is_main: whether it is its process's main thread.
        holds_gil: whether it owned the GIL, ``None`` when the tool cannot tell.
        active: whether the tool saw it running, ``None`` when it cannot tell.
        collecting: whether it was collecting garbage, ``None`` when the tool cannot tell.
        variables: local variables, of the frames whose tool was asked for them.
        is_cut: whether frames of it are missing because the dump ended inside of it, or before it: it shows
            what is on the stack, and no longer where the thread stands.
    """

    thread_id: int
    name: str | None
    frames: tuple[Frame, ...]
    is_main: bool = False
    holds_gil: bool | None = None
    active: bool | None = None
    collecting: bool | None = None
    variables: tuple[FrameVariables, ...] = ()
    is_cut: bool = False


class ProcessFacts(msgspec.Struct, frozen=True, gc=False):
    """``/proc`` of one process at one time. Counters are totals since the process started.

    Attributes:
        pid: process id; with start_ticks (``stat`` field 22) it is the process's identity.
        time: ``time.monotonic()`` when read, seconds.
        state: kernel state letter of the main thread (R, S, D, T, t, Z, X).
        wchan: kernel function the main thread sleeps in, ``""`` for none, ``None`` when unreadable.
        main_cpu_seconds: CPU time of the main thread; main_run_delay_seconds is what it waited for a core.
        other_cpu_seconds: CPU time of all other threads together.
        voluntary_switches: of the main thread.
        io_bytes: characters read and written by the main thread (``rchar`` + ``wchar``).
        minor_faults: of the process.
        started: unix time the process started, seconds.
        look_bytes: what the main thread wrote right after these facts to answer the look they belong to.
        blocked_in: system call that the main thread sleeps in and the path of its file
            (``openat /mnt/m.pt``), ``""`` when it is another call, or not known.
    """

    pid: int
    start_ticks: int
    parent: int
    time: float
    state: str
    comm: str
    wchan: str | None = None
    main_cpu_seconds: float = 0.0
    main_run_delay_seconds: float = 0.0
    other_cpu_seconds: float = 0.0
    voluntary_switches: int = 0
    io_bytes: int = 0
    minor_faults: int = 0
    thread_count: int = 1
    started: float = 0.0
    look_bytes: int = 0
    blocked_in: str = ""


class GroupProgress(msgspec.Struct, frozen=True, gc=False):
    """One process group of one rank: sequence numbers of its collectives, -1 for none yet.

    Attributes:
        members: hash of the members' global ranks, 0 when unknown: two groups may have one name.
    """

    name: str
    size: int
    enqueued: int
    completed: int
    members: int = 0


class Progress(msgspec.Struct, frozen=True, gc=False):
    """What the worker's probe wrote into the progress page.

    Attributes:
        step: optimizer steps seen since the worker started.
        seconds_since_step: age of the last step when the snapshot was taken, ``None`` before the first.
        seconds_since_beat: age of the probe thread's last beat, ``None`` before the first.
        groups: the rank's process groups.
        batches: batches that data loaders have given to the script, as of the last beat; a lower bound.
        user_step: step number that the script last gave itself, ``None`` when it never gave one.
        stage: stage that the script says it is in, ``""`` for none.
        seconds_since_return: age of the script's end when its process still waits for other threads,
            ``None`` while the script runs.
    """

    step: int = 0
    seconds_since_step: float | None = None
    seconds_since_beat: float | None = None
    groups: tuple[GroupProgress, ...] = ()
    batches: int = 0
    user_step: int | None = None
    stage: str = ""
    seconds_since_return: float | None = None


class ExitFacts(msgspec.Struct, frozen=True, gc=False):
    """How a process ended.

    Attributes:
        code: exit code as Python has it (negative: killed by that signal), ``None`` when unknown.
        message: last line of the error it reported, ``""`` for none.
        seconds_ago: age of the end when the snapshot was taken, ``None`` when unknown.
        frame: the user's innermost frame that the error came through, ``None`` when unknown.
    """

    code: int | None
    message: str = ""
    seconds_ago: float | None = None
    frame: Frame | None = None


class Collective(msgspec.Struct, frozen=True, gc=False):
    """One operation of a flight record: a collective, or a send or receive.

    Attributes:
        group: torch's name of the process group, ``""`` when the record does not tell it.
        seq: ``collective_seq_id``, for P2P ``p2p_seq_id``; the same number on every member of the group.
        op: ``all_reduce``, without the backend (``gloo:``, ``nccl:``) that the record has before it.
        is_p2p: whether it is a send or receive.
        is_completed: whether the record says that it ended.
        is_started: whether it was seen to run on the device, ``None`` when the backend does not tell (gloo).
        input_sizes: shape of each input; output_sizes of each output.
        input_dtypes: dtype of each input (``Float``); output_dtypes of each output.
        created_ns: unix time of the call, ns, 0 when unknown; started_ns and completed_ns when the record
            found out that it ran and ended, 0 when unknown (always on gloo).
        frames: where it was called, leaf first, empty in records without stacks, and of what ended long ago.
        peer: the other rank of a send or receive, ``None`` when not told.
    """

    group: str
    seq: int
    op: str
    is_p2p: bool = False
    is_completed: bool = False
    is_started: bool | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    created_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    frames: tuple[Frame, ...] = ()
    peer: int | None = None


class RecordedGroup(msgspec.Struct, frozen=True, gc=False):
    """One process group as a flight record knows it.

    Attributes:
        name: torch's name, the same on every member; ``""`` when the record does not tell it.
        description: ``default_pg``, or what the user called it.
        members: its global ranks, empty when unknown (gloo's records lose them once there are sub-groups).
        enqueued: last collective that was called, started the last seen to run, completed the last that
            ended; -1 for none, or not known.
        inside: the collective whose call has not returned: NCCL counts it when it has. -1 for none, and where
            that is not known: sends and receives of the group move the count as well.
    """

    name: str
    description: str = ""
    members: tuple[int, ...] = ()
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    inside: int = -1


class FlightRecord(msgspec.Struct, frozen=True, gc=False):
    """Torch's flight record of one rank: its groups, and its newest operations.

    Attributes:
        groups: every group the record names.
        entries: oldest first.
        is_whole: whether the record reaches back to the group's first operation. When not, what is older
            than the first entry is unknown, not missing (the ring wrapped, or older entries were left out).
        version: as written, ``""`` when the record did not come from a dump (a watchdog's log line).
        rank: the rank that the record itself names, ``None`` when it does not.
        is_cut: whether its newest entries are missing, because its file ended inside of them: what the rank
            called last is unknown.
    """

    groups: tuple[RecordedGroup, ...] = ()
    entries: tuple[Collective, ...] = ()
    is_whole: bool = False
    version: str = ""
    rank: int | None = None
    is_cut: bool = False

    @property
    def is_of_log(self) -> bool:
        """Whether it was put together from lines of a log: it says nothing of groups it does not name."""
        return not self.version

    @property
    def source(self) -> str:
        """What evidence from it is from."""
        return "log" if self.is_of_log else "flight record"


class Connection(msgspec.Struct, frozen=True, gc=False):
    """One open TCP connection of a process at one time, as the kernel shows it.

    Attributes:
        local: its own address, ``10.0.0.1:4242``; remote that of the other end.
        unacknowledged: bytes it has handed to the kernel that the other end has not acknowledged.
        unread: bytes that have arrived and that it has not read.
        retries: timeouts in a row after which the oldest of them were sent again without an answer; 0 as
            soon as one comes. A stopped process is no reason for any: its kernel answers.
    """

    local: str
    remote: str
    unacknowledged: int = 0
    unread: int = 0
    retries: int = 0


class ChildSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A child process of a rank (loader worker, checkpoint writer), or the reason it has no stacks."""

    pid: int
    facts: ProcessFacts | None = None
    threads: tuple[ThreadStack, ...] = ()
    reason: str | None = None


class RankSnapshot(msgspec.Struct, frozen=True, gc=False):
    """One rank at one time.

    Attributes:
        rank: global rank.
        node: host (or dump folder) it was seen on.
        pid: process id, 0 when unknown (dumps); start_ticks its start time.
        observed: whether stacks were obtained.
        reason: why there are none; with stacks, what is missing from them and why.
        source: the tool that gave the stacks (``py-spy``), ``None`` without stacks.
        threads: all threads of the process, leaf first each.
        children: its child processes.
        facts: ``/proc``, ``None`` when it is gone or the source is a dump.
        progress: the probe's page, ``None`` without a probe.
        exit: set when the process has ended.
        record: its flight record, ``None`` when nobody could be asked for one.
        server_answers: whether torch's server in the process answered, ``None`` when there is none, or it
            was not asked. One that accepts and stays silent belongs to a process that cannot run.
        wait_counters: torch's wait counters by name (of the same server): calls still waiting.
        connections: its open TCP connections.
    """

    rank: int
    node: str = ""
    pid: int = 0
    start_ticks: int = 0
    time: float = 0.0
    observed: bool = True
    reason: str | None = None
    source: str | None = None
    threads: tuple[ThreadStack, ...] = ()
    children: tuple[ChildSnapshot, ...] = ()
    facts: ProcessFacts | None = None
    progress: Progress | None = None
    exit: ExitFacts | None = None
    record: FlightRecord | None = None
    server_answers: bool | None = None
    wait_counters: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    connections: tuple[Connection, ...] = ()


class JobSnapshot(msgspec.Struct, frozen=True, gc=False):
    """All ranks at one time; ``time`` is unix time, seconds."""

    job: str
    time: float
    world_size: int
    ranks: tuple[RankSnapshot, ...]
    schema: int = SCHEMA


class StackGroup(msgspec.Struct, frozen=True, gc=False):
    """One stack and everyone who shows it.

    Attributes:
        count: number of threads.
        threads: ``rank:thread id``, sorted by rank.
        ranks: folded rank set.
        stack: leaf first, ``function (file:line)``.
    """

    count: int
    threads: tuple[str, ...]
    ranks: str
    stack: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One observed fact: who, seen by what, which value."""

    source: str
    fact: str
    rank: int | None = None


class Location(msgspec.Struct, frozen=True, gc=False):
    """A place in the user's code; ``source`` is the text of the line when the file is readable."""

    function: str
    file: str
    line: int
    source: str | None = None
    rank: int | None = None


class RankFinding(msgspec.Struct, frozen=True, gc=False):
    """What the diagnosis says of one rank (a row of ``ranks``).

    Attributes:
        waits_for: ranks it waits for; ``position`` is where it stands, in short.
    """

    rank: int
    node: str
    pid: int
    state: RankState
    role: Role
    rank_class: RankClass | None = msgspec.field(name="class", default=None)
    waits_for: tuple[int, ...] = ()
    position: str = ""
    observed: bool = True
    reason: str | None = None


class Unobserved(msgspec.Struct, frozen=True, gc=False):
    """A rank that could not be observed, and why."""

    rank: int
    reason: str


class UnknownFrame(msgspec.Struct, frozen=True, gc=False):
    """A library frame of deciding threads that no pattern of the catalogue knows.

    Attributes:
        file: without the prefix of its installation.
        count: number of ranks that show it.
        ranks: folded rank set.
    """

    function: str
    file: str
    count: int
    ranks: str
    kind: Literal["python", "native"] = "python"


class Diagnosis(msgspec.Struct, frozen=True, gc=False):
    """The answer for a whole job; its JSON form is the promise of INTERFACES.md.

    Attributes:
        unknown_frames: what the catalogue does not know of the frames that decide, most ranks first.
        would_change: what would change the verdict, as a phrase; ``""`` when nothing would, or not said.
        since_step: the step since which the culprits are slow, about; ``None`` when that is not known.
    """

    job: str
    time: str
    world_size: int
    observed: str
    verdict: Verdict
    kind: Kind
    severity: Severity
    confidence: Confidence
    culprits: tuple[int, ...]
    nodes: tuple[str, ...]
    summary: str
    location: Location | None
    rule: str
    evidence: tuple[Evidence, ...] = ()
    ranks: tuple[RankFinding, ...] = ()
    stacks: tuple[StackGroup, ...] = ()
    unobserved: tuple[Unobserved, ...] = ()
    incident: str | None = None
    unknown_frames: tuple[UnknownFrame, ...] = ()
    would_change: str = ""
    since_step: int | None = None
    schema: int = SCHEMA


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is done about a diagnosis; ``reason`` is a sentence a person can act on."""

    action: Action
    reason: str
    time: str
    incident: str | None = None
    culprits: tuple[int, ...] = ()
    exit_code: int | None = None
    schema: int = SCHEMA
