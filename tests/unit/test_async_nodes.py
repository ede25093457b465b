"""Nodes of independent workers: who is waited for, and what they tell each other in a real store."""

from __future__ import annotations

from torch.distributed import HashStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.async_mode.nodes import BEAT, GONE, Heard, Nodes, at_work, hear


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_node_is_at_work_until_it_says_that_it_is_done_or_nothing_more() -> None:
    heard = {0: Heard("at work 7", 100.0), 1: Heard("done 3", 100.0), 2: Heard("", 100.0)}
    assert at_work(heard, 100.0 + GONE / 2) == [0, 2]
    assert at_work(heard, 100.0 + GONE) == []


def test_a_word_counts_from_when_it_was_heard_first() -> None:
    heard = hear({}, {0: "at work 1"}, 5.0)
    heard = hear(heard, {0: "at work 1"}, 6.0)
    assert heard == {0: Heard("at work 1", 5.0)}
    assert hear(heard, {0: "at work 2"}, 7.0) == {0: Heard("at work 2", 7.0)}


def test_nobody_leaves_before_the_last_node_is_done() -> None:
    store, clock = HashStore(), Clock()
    early, late = (Nodes(store, rank, 2, clock=clock) for rank in (0, 1))
    late.tell(done=False)
    early.tell(done=True)
    # For hours, as long as it is heard of.
    for _ in range(100):
        clock.now += BEAT
        assert early.is_due(done=True)
        late.tell(done=False)
        early.tell(done=True)
        assert not early.are_done()
        assert not late.are_done()
    late.tell(done=True)
    early.tell(done=True)
    assert early.are_done()
    assert late.are_done()


def test_a_node_that_falls_silent_is_not_waited_for() -> None:
    store, clock = HashStore(), Clock()
    early, lost = (Nodes(store, rank, 2, clock=clock) for rank in (0, 1))
    lost.tell(done=False)
    early.tell(done=True)
    clock.now += GONE
    early.tell(done=True)
    assert early.are_done()


def test_a_word_is_due_at_once_when_it_is_a_new_one_and_else_after_a_while() -> None:
    clock = Clock()
    node = Nodes(HashStore(), 0, 2, clock=clock)
    node.tell(done=False)
    assert not node.is_due(done=False)
    assert node.is_due(done=True)
    clock.now += BEAT
    assert node.is_due(done=False)
