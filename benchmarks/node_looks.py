"""What the agents of a large job see when one of its ranks is stuck in its data loader; 8 ranks a node.

Made in memory, as detailed as a real look: 8 threads a rank, 25 frames deep, ``/proc``, progress, and the
newest 8 operations of three groups. Numbers of threads, processes and times differ from rank to rank.
"""

from __future__ import annotations

from typing import Final

from rankscope.diag.model import (
    Collective,
    FlightRecord,
    Frame,
    GroupProgress,
    JobSnapshot,
    ProcessFacts,
    Progress,
    RankSnapshot,
    RecordedGroup,
    ThreadStack,
)

LOCAL: Final = 8
_SITE: Final = "/opt/venv/lib/python3.11/site-packages/"
_SEQ: Final = 1200
_KEPT: Final = 8
_DEPTH: Final = 25
_START: Final = 1_700_000_000.0
_BELOW: Final = tuple(
    Frame(f"layer_{number}", f"{_SITE}torch/nn/modules/module.py", 1500 + number)
    for number in range(_DEPTH - 4)
)
_WAITS: Final = (
    Frame("all_reduce", f"{_SITE}torch/distributed/distributed_c10d.py", 3245),
    Frame("wrapper", f"{_SITE}torch/distributed/c10d_logger.py", 83),
    *_BELOW,
    Frame("train_step", "/workspace/train.py", 16),
    Frame("<module>", "/workspace/train.py", 90),
)
_LOADS: Final = (
    Frame("read_shard", "/workspace/data.py", 47),
    Frame("__getitem__", "/workspace/data.py", 61),
    *_BELOW,
    Frame("<module>", "/workspace/train.py", 90),
)
_OTHERS: Final = tuple(
    (
        Frame(f"poll_{number}", f"{_SITE}torch/utils/data/_utils/pin_memory.py", 30 + number),
        *_BELOW,
        Frame("Thread._bootstrap", "/usr/local/lib/python3.11/threading.py", 1002),
    )
    for number in range(7)
)


def a_look(node: int, *, nodes: int, culprit: int, later: float = 0.0) -> JobSnapshot:
    """The look of one agent.

    Args:
        node: its group rank.
        nodes: how many there are.
        culprit: the global rank that is stuck.
        later: seconds after the first look.
    """
    ranks = range(node * LOCAL, (node + 1) * LOCAL)
    seen = tuple(_rank(rank, nodes=nodes, culprit=culprit, later=later) for rank in ranks)
    return JobSnapshot("scale", _START + later, nodes * LOCAL, seen)


def _rank(rank: int, *, nodes: int, culprit: int, later: float) -> RankSnapshot:
    world, pid = nodes * LOCAL, 10_000 + rank * 16
    is_stuck = rank == culprit
    entered = _SEQ - 1 if is_stuck else _SEQ
    main = ThreadStack(pid, "MainThread", _LOADS if is_stuck else _WAITS, is_main=True, holds_gil=False)
    others = tuple(ThreadStack(pid + 1 + n, f"Thread-{n}", stack) for n, stack in enumerate(_OTHERS))
    return RankSnapshot(
        rank=rank,
        node=f"node{rank // LOCAL:04d}",
        pid=pid,
        start_ticks=900_000 + rank,
        time=_START + later,
        source="py-spy",
        threads=(main, *others),
        facts=_facts(pid, rank, later),
        progress=Progress(
            step=_SEQ,
            seconds_since_step=10.0 + later,
            seconds_since_beat=0.4,
            groups=(GroupProgress("0", world, entered, _SEQ - 1),),
        ),
        record=_record(rank, world, entered),
    )


def _facts(pid: int, rank: int, later: float) -> ProcessFacts:
    return ProcessFacts(
        pid=pid,
        start_ticks=900_000 + rank,
        parent=1,
        time=5_000.0 + later,
        state="S",
        comm="python",
        wchan="futex_do_wait",
        main_cpu_seconds=300.0 + rank / 1000,
        voluntary_switches=10_000 + rank,
        io_bytes=1_000_000 + rank,
        thread_count=40,
        started=_START - 3_600.0,
    )


def _record(rank: int, world: int, entered: int) -> FlightRecord:
    groups = (("0", world), (f"tp{rank // LOCAL}", LOCAL), (f"dp{rank % LOCAL}", world // LOCAL))
    entries: list[Collective] = []
    for name, _ in groups:
        last = entered if name == "0" else _SEQ - 1
        for seq in range(last - _KEPT + 1, last + 1):
            created = int(_START * 1e9) + seq * 1_000_000 + rank
            done = seq < _SEQ
            one = Collective(
                name, seq, "all_reduce", is_completed=done, created_ns=created, frames=_WAITS[-2:]
            )
            entries.append(one)
    recorded = tuple(
        RecordedGroup(name, enqueued=entered if name == "0" else _SEQ - 1, completed=_SEQ - 1)
        for name, _ in groups
    )
    return FlightRecord(recorded, tuple(entries))
