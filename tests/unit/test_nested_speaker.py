"""Which rank the end of a worker is about, when the worker is a launcher of ranks."""

from __future__ import annotations

from pathlib import Path

from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.observing.observer import Observer
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.watchdog.page import PageReader, SlotWriter, create_page

WORKER = WorkerRef(0, 0, 1, 0)
RANKS = tuple(WorkerRef(rank, rank, 0, rank) for rank in range(3))


def of(workers: tuple[WorkerRef, ...]) -> Launch:
    return Launch(workers, restart_count=0, world_size=len(workers))


def current(ended: dict[int, float], page: PageReader | None = None) -> CurrentWorkers:
    """A worker with three ranks below it."""
    found = CurrentWorkers(lambda: ended)
    found.replace(of((WORKER,)), observer(None))
    found.watch_instead(of(RANKS), observer(page))
    return found


def observer(page: PageReader | None) -> Observer:
    return Observer(of(RANKS), page, timer_calls=dict, log_sizes=dict)


def test_an_ordinary_worker_speaks_for_itself() -> None:
    found = CurrentWorkers(lambda: {0: 5.0})
    found.replace(of((WORKER,)), observer(None))
    assert not found.are_nested
    assert found.speaker(WORKER) is WORKER


def test_the_first_to_end_speaks_for_the_launcher() -> None:
    assert current({2: 7.0, 1: 6.5}).speaker(WORKER) == RANKS[1]
    assert current({}).speaker(WORKER) is WORKER, "nobody has ended: it is about the launcher itself"


def test_the_first_to_raise_speaks_whoever_ended_first(tmp_path: Path) -> None:
    create_page(tmp_path / "page", len(RANKS))
    writers = [SlotWriter(tmp_path / "page", rank.local_rank) for rank in RANKS]
    for rank, writer in zip(RANKS, writers, strict=True):
        writer.claim(rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks)
    writers[1].raised("connection closed by peer", 2000)
    writers[2].raised("ValueError: bad sample", 1000)
    page = PageReader(tmp_path / "page")
    assert current({0: 1.0}, page).speaker(WORKER) == RANKS[2]
    page.close()
    for writer in writers:
        writer.close()


def test_the_ranks_are_who_is_watched_and_the_worker_is_who_is_stopped() -> None:
    found = current({})
    assert found.are_nested
    both = found.both()
    assert both is not None
    assert both[0].workers == RANKS
    assert found.launch is not None
    assert found.launch.workers == (WORKER,)
    found.replace(of((WORKER,)), observer(None))
    assert not found.are_nested
