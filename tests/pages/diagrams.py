"""The pictures: the transitions of the detector, and of an agent in an incident; the stages of a cycle.

The detector's table stands in its docstring; a test holds it against what the detector does. The stages are
found by asking the clock itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, get_args

from tests.pages.svg import Move, lanes

from rankscope.agent.nodes.transitions import ANY, TRANSITIONS
from rankscope.agent.nodes.transitions import State as NodeState
from rankscope.diag.history.stages import CycleClock
from rankscope.diag.store.launches import STAGES, Stage
from rankscope.watchdog import detector

_TRANSITION: Final = re.compile(r"^ {4}(\w+) {2,}(\S.*?) *-> (\w+)(?: +(\S.*))?$", re.MULTILINE)
_SHOWN: Final = {"hang_unnoticed": "unnoticed", "first_step": "first step"}


def detector_moves() -> list[Move]:
    """The rows of the detector's table."""
    text = detector.__doc__ or ""
    found = _TRANSITION.findall(text)
    return [Move("" if start == "any" else start, end, why, then) for start, why, end, then in found]


def detector_picture() -> str:
    """Suspect, confirm, clear."""
    return lanes(get_args(detector.State), detector_moves(), title="Transitions of the detector")


def nodes_moves() -> list[Move]:
    """The rows of the table of an agent in an incident of several nodes."""
    return [Move("" if row.start == ANY else row.start, row.end, row.why, row.says) for row in TRANSITIONS]


def nodes_picture() -> str:
    """One incident, as one of its agents sees it."""
    return lanes(get_args(NodeState), nodes_moves(), title="An agent in an incident of several nodes")


def _asked(before: tuple[Stage, ...], then: Callable[[CycleClock], object]) -> Stage:
    """The stage that the clock is in after something happens at second 10."""
    clock = CycleClock()
    for second, stage in enumerate(before):
        clock.enter(stage, float(second))
    then(clock)
    assert clock.stage is not None
    return clock.stage


def _enters(stage: Stage, at: float = 10.0) -> Callable[[CycleClock], object]:
    return lambda clock: clock.enter(stage, at)


def stage_moves() -> list[Move]:
    """What leads from stage to stage, as the clock answers it."""
    running = STAGES[:4]
    hung = (*running, "hang_unnoticed", "collection", "analysis")
    cases: list[tuple[tuple[Stage, ...], str, Callable[[CycleClock], object]]] = [
        (STAGES[:1], "all nodes have met", _enters("start")),
        (STAGES[:2], "the workers run", _enters("first_step")),
        (STAGES[:3], "a step, a batch or a collective", lambda clock: clock.progressed(10.0)),
        (running, "a limit has passed: back to the last progress", _enters("hang_unnoticed")),
        (STAGES[:3], "the same, before anything progressed", _enters("hang_unnoticed")),
        (STAGES[:5], "snapshots are taken", _enters("collection")),
        (running, "a worker has failed: snapshots are taken", _enters("collection")),
        (STAGES[:6], "the diagnosis is there", _enters("analysis")),
        (STAGES[:7], "it was decided to end the workers", _enters("stopping")),
        (hung, "the suspicion was wrong", lambda clock: clock.cleared()),
        (hung, "the hang went away by itself", lambda clock: clock.recovered(10.0)),
        (STAGES, "the workers have ended: the next cycle", _enters("rendezvous")),
    ]
    return [Move(_shown(before[-1]), _shown(_asked(before, then)), why) for before, why, then in cases]


def stage_picture() -> str:
    """Where the time of a cycle goes."""
    return lanes([_shown(stage) for stage in STAGES], stage_moves(), title="The stages of a cycle")


def _shown(stage: str) -> str:
    return _SHOWN.get(stage, stage)
