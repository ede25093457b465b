"""All looks at a job are read by the same threads, whichever rule reads them: programs in threads."""

from __future__ import annotations

from tests.classify_factory import ARank, a_job, a_rank, collective, judge, stdlib, user
from tests.rules_factory import GET
from tests.slow_factory import judge_slow, looks_of

from rankscope.diag.model import Frame, JobSnapshot, ThreadStack


def in_trainer(rank: int, *frames: Frame, runs: bool = False) -> ARank:
    """A rank whose program runs in a thread that began in ``in_thread``, beside a reporter of its own.

    Its main thread waits at a queue: by itself, it does not tell which of the two it waits for.
    """
    program = (*frames, user("in_thread", 263))
    reporter = (stdlib("sleep", "threading.py"), user("report", 7))
    threads = (
        ThreadStack(90 + rank, "trainer", program, holds_gil=runs, active=runs),
        ThreadStack(80 + rank, "reporter", reporter, active=False),
    )
    return a_rank(rank).stuck_in(*GET).but(others=threads)


def reducing(rank: int) -> ARank:
    return in_trainer(rank, *collective()[:2], user("step", 19))


def looping(rank: int) -> ARank:
    return in_trainer(rank, user("spin", 30), runs=True)


def test_the_slow_rank_s_place_is_its_program_s_thread_s() -> None:
    looks = looks_of(
        *([reducing(rank).but(step=at) for at in range(20)] for rank in (0, 2)),
        [in_trainer(1, user("crunch", 8)).but(step=at) for at in range(20)],
    )
    found = judge_slow(*looks)
    assert (found.verdict, found.culprits) == ("RankNonCommSlow", (1,))
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("crunch", 8)


def test_a_loop_in_the_program_s_thread_is_found_by_quick_looks() -> None:
    ranks = [reducing(0), looping(1).but(cpu=1.0), reducing(2)]
    quick = tuple(a_job(looping(1), seconds=0.2 * at, world_size=3) for at in range(20))
    found = judge(a_job(*ranks), a_job(*ranks, seconds=4.0), samples=quick, silent=40.0)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "python_loop", (1,))


def dumped(frames: Frame, at: int) -> JobSnapshot:
    """A whole look of a dump: without process facts."""
    ranks = (reducing(0), in_trainer(1, frames), reducing(2))
    return a_job(*ranks, seconds=4.0 * at, facts=False)


def test_a_rank_whose_program_stands_in_one_place_in_all_looks_has_not_strayed() -> None:
    found = judge(*(dumped(user("load", 8), at) for at in (0, 2)), samples=(dumped(user("load", 8), 1),))
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (1,))
    found = judge(*(dumped(user("load", 8), at) for at in (0, 2)), samples=(dumped(user("parse", 4), 1),))
    assert found.verdict == "Unknown"
