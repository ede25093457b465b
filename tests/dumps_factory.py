"""Small builders of what readers find in an input: ``a_file("rank0.pyspy.txt", a_dump(10, ...))``."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.dumps.gather import Gathered, gather
from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import (
    Collective,
    ExitFacts,
    FlightRecord,
    Frame,
    FrameVariables,
    RankSnapshot,
    RecordedGroup,
    ThreadStack,
)
from rankscope.diag.read import Contents, FactKind, LogFact, StackDump, StackSource

TRAIN = "/workspace/train.py"


def python(function: str, line: int, file: str = TRAIN, source: str = "") -> Frame:
    return Frame(function, file, line, source=source)


def native(symbol: str) -> Frame:
    return Frame(symbol, "/usr/lib/libtorch_cpu.so", 0, "native")


STUCK = (python("load_batch", 8), python("<module>", 90))
WAITS = (python("all_reduce", 3252, "/venv/torch/distributed/distributed_c10d.py"), python("<module>", 91))


def a_dump(
    pid: int,
    *frames: Frame,
    source: StackSource = "py-spy",
    rank: int | None = None,
    others: Sequence[ThreadStack] = (),
    variables: tuple[FrameVariables, ...] = (),
    name: str | None = "MainThread",
    gil: bool | None = None,
    title: str = "",
    parent: int = 0,
    trouble: str = "",
) -> StackDump:
    main = ThreadStack(pid, name, frames, is_main=True, holds_gil=gil, variables=variables)
    return StackDump(
        source,
        (main, *others) if frames else (),
        pid=pid,
        rank=rank,
        title=title,
        is_native=any(frame.kind == "native" for frame in frames),
        has_variables=bool(variables),
        trouble=trouble,
        parent=parent,
    )


def a_record(*members: int, enqueued: int = 4, completed: int = 3, entries: int = 1) -> FlightRecord:
    group = RecordedGroup("0", members=members, enqueued=enqueued, completed=completed)
    calls = tuple(Collective("0", enqueued - at, "all_reduce") for at in reversed(range(entries)))
    return FlightRecord((group,), calls, is_whole=True, version="2.10")


def a_fact(
    kind: FactKind,
    text: str = "",
    *,
    rank: int | None = None,
    pid: int = 0,
    time: float | None = None,
    code: int | None = None,
    record: FlightRecord | None = None,
    other: tuple[int, FlightRecord] | None = None,
) -> LogFact:
    end = ExitFacts(code, text) if code is not None else None
    return LogFact(kind, text, 1, rank, pid, time, end, record, other)


def a_file(path: str, *found: StackDump | FlightRecord | LogFact) -> Source:
    contents = Contents(
        dumps=tuple(one for one in found if isinstance(one, StackDump)),
        records=tuple(one for one in found if isinstance(one, FlightRecord)),
        facts=tuple(one for one in found if isinstance(one, LogFact)),
        lines=len(found),
        size_bytes=len(found),
    )
    return Source(path, read_name(path.split("/")), contents)


def gathered(*sources: Source) -> Gathered:
    return gather(sources, job="run-7", time=1000.0)


def ranks_of(*sources: Source) -> dict[int, RankSnapshot]:
    """The newest snapshot of each rank."""
    return {rank.rank: rank for rank in gathered(*sources).snapshots[-1].ranks}
