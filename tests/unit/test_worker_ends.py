"""Whether all workers are done: of what is not known it is not said."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rankscope.agent.workers import ends
from rankscope.agent.workers.ends import WorkerEnds
from rankscope.agent.workers.model import Launch, WorkerRef

TWO = Launch((WorkerRef(4, 0, 10, 1), WorkerRef(5, 1, 11, 1)), restart_count=0, world_size=6)


class Roster:
    """Who the workers are."""

    def __init__(self, launch: Launch | None) -> None:
        self.launch = launch


@pytest.mark.parametrize(
    ("codes", "expected"),
    [({0: 0, 1: 0}, True), ({0: 0}, False), ({}, False), ({0: 0, 1: -15}, False), ({0: 1, 1: 0}, False)],
)
def test_all_are_done_when_each_is_known_to_have_ended_with_0(
    codes: dict[int, int], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "exit_codes", lambda _pcontext: codes)
    us = cast("Any", Roster(TWO))
    assert WorkerEnds(us, lambda: us, node="vm", role="worker").are_all_done() is expected


def test_before_the_first_launch_there_is_nobody_to_look_at() -> None:
    us = cast("Any", Roster(None))
    assert WorkerEnds(us, lambda: None, node="vm", role="worker").are_all_done()
