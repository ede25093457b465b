"""Diagnoses for tests of the report: one that hangs, one with hostile names, one of thousands of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tests.classify_factory import a_rank, judge_still, user
from tests.history_factory import a_job_file, a_log

from rankscope.diag.history.model import JobHistory
from rankscope.diag.history.read import read_job
from rankscope.diag.history.story import history_of
from rankscope.diag.merge import fold_stacks
from rankscope.diag.model import (
    Diagnosis,
    Frame,
    JobSnapshot,
    Progress,
    RankFinding,
    RankSnapshot,
    StackGroup,
    ThreadStack,
)
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.job import JobFolder

MADE: Final = "2026-11-30T12:00:00.000Z"
HOSTILE: Final = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "</style><img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "]]>&lt;&amp;",
    "{{ 7*7 }}{% raw %}",
    "a;b;c 99",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202eevil\u2066",
    "\u2028\u2029\x85",
    "\x00\ud800",
    '" onfocus="x" autofocus="',
    "javascript:alert(1)",
    "x" * 5000,
    "__proto__",
)


def hang() -> Diagnosis:
    """Rank 2 of 5 loads data, three wait for it, one was not seen."""
    ranks = [a_rank(rank).waiting_in() for rank in (0, 1, 3)]
    stuck = a_rank(2).stuck_in(user("load_batch", 8))
    return judge_still(*ranks, stuck, world_size=5, lines={8: "time.sleep(1e6)"})


def hostile(text: str) -> Diagnosis:
    """A hang in which all that a job can name is called ``text``."""
    stuck = a_rank(1).stuck_in(Frame(text, f"/w/{text}.py", 3, short_file=f"{text}.py"))
    found = judge_still(a_rank(0).waiting_in(), a_rank(2).unseen(text), stuck, lines={3: text})
    from msgspec.structs import replace

    ranks = tuple(replace(one, node=text, position=text, reason=text) for one in found.ranks)
    return replace(found, job=text, nodes=(text,), ranks=ranks, incident=text, would_change=text)


Shape = Literal["alike", "all_different", "every_third", "pipeline"]


def a_big_job(size: int, shape: Shape = "alike") -> tuple[Diagnosis, JobSnapshot]:
    """A job of ``size`` ranks, eight a node, in which rank 9 hangs, and its last look."""
    at: dict[Shape, Callable[[int], int]] = {
        "alike": lambda rank: 0,
        "all_different": lambda rank: rank,
        "every_third": lambda rank: rank % 3,
        "pipeline": lambda rank: 0,
    }
    shared = tuple(user(f"layer_{depth}", depth) for depth in range(30, 0, -1))
    stuck = (user("load_batch", 8), *shared)
    leaves = {at[shape](rank): Frame("all_reduce", "/x/c10d.py", at[shape](rank) + 1) for rank in range(size)}
    waiting = {place: (leaf, *shared) for place, leaf in leaves.items()}
    snapshots: list[RankSnapshot] = []
    for rank in range(size):
        frames = stuck if rank == 9 else waiting[at[shape](rank)]
        main = ThreadStack(rank + 10_000, "MainThread", frames, is_main=True)
        progress = Progress(step=1000 + rank % 7, seconds_since_step=30.0 + rank / 1000)
        node = f"host-{rank // 8:05}"
        snapshots.append(RankSnapshot(rank, node, 10_000 + rank, threads=(main,), progress=progress))
    everyone = tuple(range(size))
    others = tuple(
        StackGroup(
            size,
            tuple(f"{rank}:{rank + 30_000 * i}" for rank in everyone),
            fold_ranks(everyone),
            (f"other_{i} (train.py:1)",),
        )
        for i in range(1, 9)
    )
    diagnosis = Diagnosis(
        job="big",
        time=MADE,
        world_size=size,
        observed=fold_ranks(everyone),
        verdict="RankNonCommHang",
        kind="data_loading",
        severity="warning",
        confidence="high",
        culprits=(9,),
        nodes=("host-00001",),
        summary="rank 9 is stuck in load_batch (train.py:8)",
        location=None,
        rule="4",
        ranks=tuple(_finding(rank, shape, at[shape](rank), size) for rank in everyone),
        stacks=(*fold_stacks(snapshots), *others),
    )
    return diagnosis, JobSnapshot("big", 1000.0, size, tuple(snapshots))


def _finding(rank: int, shape: Shape, place: int, size: int) -> RankFinding:
    node = f"host-{rank // 8:05}"
    if rank == 9:
        return RankFinding(rank, node, 10_000 + rank, "hung", "culprit", "RankNonCommHang", (), "load_batch")
    waits = ((rank + 1) % size,) if shape == "pipeline" else (9,)
    return RankFinding(
        rank, node, 10_000 + rank, "waiting", "victim", None, waits, f"all_reduce ({place})", reason=None
    )


def a_history(folder: JobFolder) -> JobHistory:
    """A job of one node whose rank 2 failed, that was restarted once and ended well."""
    a_job_file(folder, ended=100.0, result="succeeded")
    log = a_log().agent().launch().passes(5).fails(2, incident="i-1").passes(1)
    log.event("decision", {"action": "restart", "reason": "rank 2 failed"}, subject="i-1")
    log.restart_begins().passes(8).restart_done().launch(2).passes(9).ends()
    log.write(folder)
    return history_of(read_job(folder))
