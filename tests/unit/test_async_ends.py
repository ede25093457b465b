"""Which ends of independent workers are failures of theirs, and which come of what stops the agent."""

from __future__ import annotations

import signal
import threading

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from rankscope.agent.async_mode.failed import is_of_the_end
from rankscope.agent.ending.signals import StopSignals
from rankscope.diag.model import ExitFacts


def is_excused(code: int, *, signalled: bool) -> bool:
    """Whether an end with that code is excused; the agent is signalled while that is found out, or not."""
    signals = StopSignals()
    signals.arm()
    sender = threading.Thread(target=signals.handle, args=(signal.SIGTERM, None))
    excused = False
    with pytest.raises(SignalException) if signalled else signals.hold(), signals.hold():
        if signalled:
            sender.start()
        excused = is_of_the_end(1, ExitFacts(code=code, seconds_ago=0.0), signals)
        if signalled:
            sender.join()
    return excused


def test_a_worker_that_was_signalled_just_before_the_agent_has_not_failed() -> None:
    assert is_excused(-signal.SIGTERM, signalled=True)


def test_a_worker_that_somebody_signalled_alone_has_failed() -> None:
    assert not is_excused(-signal.SIGTERM, signalled=False)


@pytest.mark.parametrize("signalled", [True, False])
def test_a_killed_worker_has_failed_whatever_comes_next(signalled: bool) -> None:
    assert not is_excused(-signal.SIGKILL, signalled=signalled)
