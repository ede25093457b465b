"""Small builders of snapshots for tests of merge, classify and report: ``a_rank(2).stuck_in(...)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as struct_replace

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import (
    ChildSnapshot,
    Diagnosis,
    ExitFacts,
    Frame,
    GroupProgress,
    JobSnapshot,
    ProcessFacts,
    Progress,
    RankSnapshot,
    ThreadStack,
)

SITE = "/opt/venv/lib/python3.11/site-packages/"
TRAIN = "/workspace/train.py"
C10D = SITE + "torch/distributed/distributed_c10d.py"


def user(function: str, line: int, file: str = TRAIN) -> Frame:
    """A frame of the user's own code."""
    return Frame(function, file, line, short_file=file.rpartition("/")[2])


def torch_frame(function: str, file: str, line: int = 1) -> Frame:
    """A frame of an installed package."""
    return Frame(function, SITE + file, line, short_file=file)


def stdlib(function: str, file: str, line: int = 1) -> Frame:
    """A frame of the standard library."""
    return Frame(function, f"/usr/local/lib/python3.11/{file}", line, short_file=file)


def native(symbol: str, library: str = "libtorch_cpu.so") -> Frame:
    """A native frame."""
    return Frame(symbol, f"/usr/lib/{library}", 0, "native", library)


def collective(name: str = "all_reduce", *, caller: str = "train_step", line: int = 11) -> tuple[Frame, ...]:
    """The stack of a rank inside a collective, leaf first."""
    return (
        torch_frame(name, "torch/distributed/distributed_c10d.py", 3252),
        torch_frame("_exception_logger.<locals>.wrapper", "torch/distributed/c10d_logger.py", 83),
        user(caller, line),
        user("<module>", 90),
    )


@dataclass(frozen=True)
class ARank:
    """A rank under construction; each method gives a changed copy."""

    rank: int
    frames: tuple[Frame, ...] = ()
    others: tuple[ThreadStack, ...] = ()
    children: tuple[ChildSnapshot, ...] = ()
    state: str | None = "S"
    wchan: str | None = None
    cpu: float = 0.0
    other_cpu: float = 0.0
    switches: float = 0.0
    io: float = 0.0
    groups: tuple[GroupProgress, ...] = ()
    step: int | None = None
    beat: float | None = None
    exit: ExitFacts | None = None
    gil: bool | None = False
    active: bool | None = False
    reason: str | None = None
    start_ticks: int = 7
    call: str = ""
    child_cpu: Mapping[int, float] = field(default_factory=dict[int, float])

    @property
    def pid(self) -> int:
        return 4728 + self.rank

    def waiting_in(self, name: str = "all_reduce", *, seq: int | None = None, line: int = 11) -> ARank:
        made = replace(self, frames=collective(name, line=line), wchan="futex_do_wait")
        return made if seq is None else made.at(seq, completed=seq - 1)

    def stuck_in(self, *frames: Frame, wchan: str | None = None) -> ARank:
        return replace(self, frames=(*frames, user("<module>", 90)), wchan=wchan)

    def at(self, enqueued: int, *, completed: int | None = None, group: str = "0", size: int = 4) -> ARank:
        done = enqueued if completed is None else completed
        return replace(self, groups=(*self.groups, GroupProgress(group, size, enqueued, done)))

    def unseen(self, reason: str = "ptrace denied") -> ARank:
        return replace(self, frames=(), reason=reason)

    def but(self, **changes: object) -> ARank:
        return replace(self, **changes)  # type: ignore[arg-type] # test builder

    def build(self, seconds: float, *, facts: bool = True) -> RankSnapshot:
        main = ThreadStack(self.pid, "MainThread", self.frames, True, self.gil, self.active)
        progress = None
        if self.groups or self.step is not None or self.beat is not None:
            progress = Progress(self.step or 0, 30.0, self.beat, self.groups)
        proc = None
        if facts and self.state is not None:
            proc = self._facts(self.pid, seconds, self.cpu, self.switches, self.io, others=self.other_cpu)
            proc = struct_replace(proc, blocked_in=self.call)
        return RankSnapshot(
            rank=self.rank,
            node="host-a",
            pid=self.pid,
            start_ticks=self.start_ticks,
            time=1000.0 + seconds,
            observed=bool(self.frames),
            reason=self.reason,
            source="py-spy" if self.frames else None,
            threads=(main, *self.others) if self.frames else (),
            children=tuple(self._child(child, seconds) for child in self.children),
            facts=proc,
            progress=progress,
            exit=self.exit,
        )

    def _child(self, child: ChildSnapshot, seconds: float) -> ChildSnapshot:
        facts = self._facts(child.pid, seconds, self.child_cpu.get(child.pid, 0.0), 0.0, 0.0)
        return ChildSnapshot(child.pid, child.facts or facts, child.threads, child.reason)

    def _facts(
        self, pid: int, seconds: float, cpu: float, switches: float, io: float, *, others: float = 0.0
    ) -> ProcessFacts:
        return ProcessFacts(
            pid=pid,
            start_ticks=self.start_ticks,
            parent=1,
            time=seconds,
            state=self.state or "S",
            comm="python",
            wchan=self.wchan,
            main_cpu_seconds=cpu * seconds,
            other_cpu_seconds=others * seconds,
            voluntary_switches=int(switches * seconds) + 2 * int(seconds > 0),
            io_bytes=int(io * seconds),
            started=900.0,
        )


def a_rank(rank: int) -> ARank:
    """Start building a rank."""
    return ARank(rank)


def a_job(
    *ranks: ARank, seconds: float = 0.0, world_size: int | None = None, facts: bool = True
) -> JobSnapshot:
    """A job at one time."""
    built = tuple(rank.build(seconds, facts=facts) for rank in ranks)
    return JobSnapshot("run-7", 1000.0 + seconds, world_size or len(ranks), built)


def judge(
    before: JobSnapshot,
    after: JobSnapshot | None = None,
    *,
    lines: Mapping[int, str] | None = None,
    samples: tuple[JobSnapshot, ...] = (),
    silent: float | None = None,
) -> Diagnosis:
    """Diagnose a pair; ``lines`` are the texts of the user's lines by number."""
    texts = lines or {}
    source: Callable[[str, int], str | None] = lambda _file, line: texts.get(line)  # noqa: E731 - short
    return diagnose(
        (before, after),
        catalogue=load_catalogue(),
        source_line=source,
        time="2026-11-29T16:40:00Z",
        silent_seconds=silent,
        samples=samples,
    )


def judge_still(
    *ranks: ARank,
    world_size: int | None = None,
    lines: Mapping[int, str] | None = None,
    silent: float | None = 12.0,
    trained: bool = True,
) -> Diagnosis:
    """Diagnose a pair in which every rank stands still for 4 s but for its own counters.

    ``silent`` is how long a watcher has seen no progress, ``None`` when nobody watched; ``trained``: the page
    shows steps, unless a rank says otherwise.
    """
    if trained:
        ranks = tuple(rank if rank.step is not None else rank.but(step=5) for rank in ranks)
    before, after = a_job(*ranks, world_size=world_size), a_job(*ranks, seconds=4.0, world_size=world_size)
    return judge(before, after, lines=lines, silent=silent)
