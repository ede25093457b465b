"""Lines that torch's watchdogs write, and the diagnosis of a log alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.reading_factory import read

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.dumps.gather import gather
from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import Diagnosis

DEFAULT = "0(default_pg)"
CAUGHT = "Watchdog caught collective operation timeout"
DETECTED = "failure detected by watchdog"
WHY = "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks"


def of_log(*lines: str) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis of a log alone, and what of it nothing used."""
    contents = read("".join(f"{line}\n" for line in lines).encode())
    found = gather([Source("train.log", read_name(["train.log"]), contents)], job="j", time=1.0)
    diagnosis = diagnose(
        (found.snapshots[-1], None), catalogue=Catalogue.load(), source_line=lambda _f, _l: None, time="t"
    )
    return with_log_facts(diagnosis, found.facts)


def caught(
    rank: int,
    seq: int = 9931,
    *,
    op: str = "ALLREDUCE",
    size: int = 8,
    group: str = DEFAULT,
    local: int | None = None,
    stack: Sequence[str] = (),
) -> str:
    """A rank's watchdog says that a collective ran out of time, how far the group is, and who called."""
    local = rank if local is None else local
    work = f"SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000"
    status = f"last enqueued work: {seq}, last completed work: {seq - 1 if seq > 1 else -1}"
    lines = [
        f"[Rank {local}] {CAUGHT}: WorkNCCL({work}) ran for {600020 + rank} milliseconds before timing out.",
        f"[PG ID 3 PG GUID {group} Rank {local}]  {DETECTED} at work sequence id: {seq} PG status: {status}",
        "Stack trace of the failed collective: "
        if stack
        else "Some NCCL operations have failed or timed out.",
    ]
    said = [f"[rank{rank}]:[E606 09:09:08.1 ProcessGroupNCCL.cpp:688] {line}" for line in lines]
    return "\n".join([*said, *(f"#{at} {frame}" for at, frame in enumerate(stack)), ""])


def told(rank: int, last: int, *, group: str = DEFAULT, local: int | None = None) -> str:
    """A rank that did not run out of time is told that another did, and says how far it is."""
    own = f"[PG ID 3 PG GUID {group} Rank {rank if local is None else local}]"
    return (
        f"[rank{rank}]:[E606 09:09:08.9 ProcessGroupNCCL.cpp:1987] {own} Received a dump signal due to a "
        "collective timeout from  rank 0 and we will try our best to dump the debug info. "
        f"Last enqueued NCCL work: {last}, last completed NCCL work: {last}.{WHY}"
    )


def summary(root: int, code: int, **others: int) -> str:
    """torchrun's summary: who failed first, and ``rank1=-6`` of the others."""
    border = ["=" * 60, "train.py FAILED", "-" * 60]
    failures = [_failure(int(name.removeprefix("rank")), ended) for name, ended in others.items()]
    return "\n".join(
        [
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            *border,
            "Failures:",
            *(failures or ["  <NO_OTHER_FAILURES>"]),
            "-" * 60,
            "Root Cause (first observed failure):",
            _failure(root, code),
            "=" * 60,
        ]
    )


def _failure(rank: int, code: int) -> str:
    word = f"Signal {-code} received by PID {4000 + rank}" if code < 0 else "To enable traceback see: x"
    return (
        f"[{rank}]:\n  time      : 2026-06-06_09:10:12\n  host      : gpu1\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {4000 + rank})\n"
        f"  error_file: <N/A>\n  traceback : {word}"
    )


def all_but(ranks: int, *left_out: int, line: Callable[[int], str] = caught) -> list[str]:
    """The same of every rank of so many, but of some."""
    return [line(rank) for rank in range(ranks) if rank not in left_out]
