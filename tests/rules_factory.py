"""Ranks as the tests of rules need them again and again: waiting, loading, ended, training in a thread."""

from __future__ import annotations

from msgspec.structs import replace
from tests.classify_factory import ARank, a_rank, stdlib, torch_frame, user

from rankscope.diag.model import (
    ChildSnapshot,
    Diagnosis,
    ExitFacts,
    Frame,
    FrameVariables,
    JobSnapshot,
    ThreadStack,
)

LOADER = "torch/utils/data/dataloader.py"
LOADER_WAIT = (
    stdlib("_PollLikeSelector.select", "selectors.py", 415),
    stdlib("wait", "multiprocessing/connection.py", 947),
    torch_frame("_MultiProcessingDataLoaderIter._try_get_data", LOADER, 1291),
    torch_frame("_BaseDataLoaderIter.__next__", LOADER, 725),
    user("train", 63),
)
BACKWARD = (
    torch_frame("_engine_run_backward", "torch/autograd/graph.py"),
    user("train", 19),
    user("in_thread", 263),
)
JOIN = (
    stdlib("Thread._wait_for_tstate_lock", "threading.py", 1139),
    stdlib("Thread.join", "threading.py", 1119),
    user("main", 320),
)
GET = (stdlib("Condition.wait", "threading.py", 327), stdlib("Queue.get", "queue.py", 171), user("main", 320))


def waiting(*ranks: int, seq: int | None = None) -> list[ARank]:
    return [a_rank(rank).waiting_in(seq=seq) for rank in ranks]


def loading(rank: int = 2) -> ARank:
    return a_rank(rank).stuck_in(user("load_batch", 8), wchan="hrtimer_nanosleep")


def receiving(rank: int) -> ARank:
    return a_rank(rank).waiting_in("recv").but(active=False)


def with_peer(job: JobSnapshot, peers: dict[int, int]) -> JobSnapshot:
    """The look with the local variables of calls that are their stacks' leaves: whom those receive from."""
    ranks = [
        replace(
            rank,
            threads=tuple(
                replace(thread, variables=(FrameVariables(0, (("src", str(peers[rank.rank])),)),))
                for thread in rank.threads
            ),
        )
        if rank.rank in peers
        else rank
        for rank in job.ranks
    ]
    return replace(job, ranks=tuple(ranks))


def ended(rank: int, code: int | None, message: str = "", ago: float | None = None) -> ARank:
    return a_rank(rank).but(state=None, exit=ExitFacts(code, message, ago))


def in_thread(rank: int, *frames: Frame, main: tuple[Frame, ...] = JOIN) -> ARank:
    trainer = ThreadStack(90 + rank, "trainer", frames, active=False)
    return a_rank(rank).stuck_in(*main).but(others=(trainer,))


def a_child(pid: int, *frames: Frame) -> ChildSnapshot:
    return ChildSnapshot(pid, None, (ThreadStack(pid, "MainThread", frames, is_main=True),))


def in_child(rank: int, *frames: Frame) -> ARank:
    parent = (stdlib("Popen._try_wait", "subprocess.py", 2004), user("launch", 363))
    return a_rank(rank).stuck_in(*parent).but(children=(a_child(70 + rank, *frames),))


def said(found: Diagnosis) -> tuple[str, str, str, tuple[int, ...], str]:
    return found.verdict, found.kind, found.confidence, found.culprits, found.rule


def facts_of(found: Diagnosis) -> list[str]:
    return [one.fact for one in found.evidence]
