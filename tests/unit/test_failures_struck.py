"""Ends that came with the signal that stops the agent are told from those that came of a fault."""

from __future__ import annotations

import pytest

from rankscope.agent.failures.struck import how_it_ended, is_by_stop_signal, split_ends
from rankscope.diag.model import ExitFacts


@pytest.mark.parametrize(
    ("code", "ended_before", "is_struck"),
    [
        (-15, 0.15, True),
        (-15, 4.0, True),
        (-15, 30.0, False),  # long before: somebody ended this one alone
        (143, 0.15, True),
        (-2, 0.15, True),
        (1, 0.15, True),  # it handles the signal
        (0, 0.15, True),
        (1, 2.0, False),
        (7, -0.2, True),  # after the agent's signal
        (-9, 0.15, False),  # out of memory
        (-11, -0.2, False),
        (None, 0.15, True),
    ],
)
def test_an_end_belongs_to_the_signal_by_its_code_and_time(
    code: int | None, ended_before: float, *, is_struck: bool
) -> None:
    found = split_ends({3: ExitFacts(code, "", ended_before + 1.0)}, signalled_ago=1.0)
    assert (3 in found.struck) is is_struck
    assert (3 in found.causes) is not is_struck


def test_without_a_signal_every_end_is_a_cause() -> None:
    ends = {0: ExitFacts(-15, "", 0.1)}
    assert split_ends(ends, signalled_ago=None).causes == ends


def test_an_end_is_told_in_words() -> None:
    assert [how_it_ended(code) for code in (-15, 130, 7, -9, None)] == [
        "by SIGTERM",
        "by SIGINT",
        "with exit code 7",
        "with exit code -9",
        "in an unknown way",
    ]
    assert not is_by_stop_signal(None)
