"""Which of several failed workers is the root: time, consequences, clocks, ties."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from tests.failures_factory import CLOSED, T0, an_end, ended

from rankscope.agent.failures.error_file import Recorded
from rankscope.agent.failures.last_words import last_words
from rankscope.agent.failures.model import EndWords, Failure
from rankscope.agent.failures.root import CLOCK_SKEW, choose_root, other_failures
from rankscope.agent.failures.telling import tell
from rankscope.diag.model import Frame


def root(*words: EndWords) -> Failure:
    """The root, the same for every order of the ends."""
    found = {choose_root(order) for order in itertools.permutations(words)}
    assert len(found) == 1
    failure = found.pop()
    assert failure is not None
    return failure


def test_the_first_in_time_is_the_root() -> None:
    failure = root(
        ended(0, "ValueError: a", after=2),
        ended(1, "ValueError: b", after=1),
        ended(2, "ValueError: c", after=3),
    )
    assert (failure.rank, failure.message, failure.at) == (1, "ValueError: b", T0 + 1)
    assert (failure.tied_with, failure.why_first) == ((), "ranks 0,2 failed later")


def test_a_killed_rank_comes_before_those_that_lost_their_connection_to_it() -> None:
    failure = root(ended(0, CLOSED, after=0.02), ended(1, code=-9), ended(2, CLOSED, after=0.06))
    assert (failure.rank, failure.message, failure.source) == (1, "killed by SIGKILL", "exit code")
    assert failure.why_first == "ranks 0,2 lost their connections or waited in vain"


def test_who_raised_first_is_the_root_even_if_its_exit_takes_longer() -> None:
    slow = ended(2, "ValueError: bad", after=12, said_at=T0)
    assert root(ended(0, CLOSED, after=0.05, said_at=T0 + 0.03), slow).rank == 2


def test_who_raised_is_the_root_even_if_it_was_then_stopped() -> None:
    """Its exit handlers ran until the agent, which had seen a victim's end, stopped everybody."""
    slow = ended(2, "ValueError: bad", after=5, code=-15, said_at=T0, stopped_at=T0 + 1)
    assert root(ended(0, CLOSED, after=0.9), slow).rank == 2


def test_who_fails_while_it_is_stopped_is_no_root() -> None:
    stopped = ended(2, "ValueError: in a handler", after=1.2, said_at=T0 + 1.1, stopped_at=T0 + 1)
    failure = root(ended(0, CLOSED, after=0.9), stopped)
    assert failure.rank == 0
    assert failure.why_first.startswith("rank 2 was asked to end")


def test_a_survivors_sigterm_is_no_root() -> None:
    assert root(ended(0, code=-15, after=0.5, stopped_at=T0 + 0.2), ended(1, code=3)).rank == 1
    assert root(ended(0, code=143), ended(1, code=3, after=0.5)).rank == 1


def test_without_any_other_a_sigterm_from_outside_is_the_root() -> None:
    failure = root(ended(0, code=-15, after=0.1), ended(1, code=-15))
    assert (failure.rank, failure.message, failure.retryable) == (1, "ended by SIGTERM", True)


def test_workers_that_the_agent_stopped_are_no_failure() -> None:
    assert choose_root([ended(0, code=-15, stopped_at=T0 - 1), ended(1, code=-9, stopped_at=T0 - 1)]) is None
    assert choose_root([ended(0, code=0), ended(1, code=0)]) is None
    assert choose_root([]) is None


def test_lost_connections_alone_have_the_first_as_root_and_that_is_said() -> None:
    failure = root(ended(0, CLOSED, after=0.2), ended(1, CLOSED), ended(2, code=0, after=-1))
    assert failure.rank == 1
    assert failure.why_first == (
        "rank 0 failed later; no failure that explains it is known; rank 2 had ended with exit code 0"
    )


@pytest.mark.parametrize(
    "late", [ended(1, "ValueError: b", after=9, said_at=T0 + 9), ended(1, code=-11, after=9)]
)
def test_a_failure_that_came_too_late_explains_nothing(late: EndWords) -> None:
    failure = root(ended(0, CLOSED), late)
    assert (failure.rank, failure.why_first) == (
        0, "rank 1 failed too late to explain it; no failure that explains it is known"
    )  # fmt: skip


def test_an_exit_without_a_known_cause_may_come_long_after_it() -> None:
    assert root(ended(0, CLOSED), ended(1, code=7, after=40)).rank == 1


def test_a_watchdogs_abort_is_a_consequence() -> None:
    log = last_words("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n")
    watchdog = tell(an_end(0, code=-6, after=600), None, log)
    assert root(watchdog, ended(1, code=-9)).rank == 1
    assert root(watchdog, ended(1, code=3, after=603)).rank == 1


def test_an_end_of_which_nothing_is_known_explains_what_nothing_else_does() -> None:
    unknown = ended(1, code=None, after=-1)
    assert root(unknown, ended(0, CLOSED)).rank == 1
    failure = root(unknown, ended(0, "ValueError: a"))
    assert (failure.rank, failure.why_first) == (0, "rank 1 ended in an unknown way")


def test_nodes_can_exchange_what_they_read() -> None:
    words = ended(3, "AssertionError", frame=Frame("load", "/w/train.py", 8))
    assert msgspec.json.decode(msgspec.json.encode(words), type=EndWords) == words


def test_ends_of_one_instant_are_a_tie_and_that_is_said() -> None:
    failure = root(ended(0, "ValueError: bad config"), ended(1, "ValueError: bad config", after=0.002))
    assert (failure.rank, failure.tied_with) == (0, (1,))
    assert failure.why_first == "ranks 0-1 failed at the same instant, as far as can be told"


def test_a_tie_has_the_same_root_each_time() -> None:
    """Who is counted for the same error must not depend on microseconds."""
    said = "ValueError: bad config"
    assert root(ended(0, said, after=0.003), ended(1, said)).rank == 0
    assert root(ended(0, said), ended(1, said, after=0.003)).rank == 0


def test_of_a_tie_who_says_why_is_the_root() -> None:
    failure = root(ended(0, code=1), ended(1, "ValueError: bad", after=0.002))
    assert (failure.rank, failure.tied_with) == (1, (0,))


def test_whole_seconds_are_not_taken_for_exact_times() -> None:
    """torch's own time of a failure: rank 0's second began before rank 1 failed, and ended after it."""
    whole = ended(0, "ValueError: a", uncertainty=1.0)
    assert root(whole, ended(1, "ValueError: b", after=0.4)).tied_with != ()
    assert root(whole, ended(1, "ValueError: b", after=1.4)).tied_with == ()


def test_clocks_of_two_nodes_may_differ() -> None:
    one = ended(0, "ValueError: a", node="a")
    near = ended(1, "ValueError: b", node="b", after=CLOCK_SKEW / 2)
    assert root(one, near).tied_with == (1,)
    assert root(one, ended(1, "ValueError: b", node="b", after=CLOCK_SKEW * 2)).tied_with == ()


def test_an_error_file_says_when_it_was_raised() -> None:
    recorded = Recorded("ValueError: bad\nsecond line", "", T0, 1.0)
    words = tell(an_end(2, after=30), recorded, None)
    assert (words.failed_at, words.uncertainty, words.raised, words.source) == (T0, 1.0, True, "error file")
    assert root(words, ended(0, CLOSED, after=0.7)).message == "ValueError: bad"


def test_a_clock_that_was_set_back_puts_no_cause_behind_its_end() -> None:
    words = tell(an_end(2), Recorded("ValueError: bad", "", T0 + 3600, 1.0), None)
    assert words.failed_at == T0


def test_a_failure_knows_its_instance_and_its_place() -> None:
    frame = Frame("load", "/w/train.py", 8)
    failure = root(ended(3, "AssertionError", node="n7", frame=frame, role="trainer"))
    assert (failure.instance, failure.role) == ("n7/rank 3", "trainer")
    assert (failure.frame, failure.identity) == (frame, "AssertionError in load (train.py)")


def test_nccls_last_error_belongs_to_the_line_that_is_read() -> None:
    text = (
        "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system error\n"
        "ncclSystemError: System call failed\nLast error:\nsocketStartConnect: Connect to 1.2.3.4<5> failed"
    )
    failure = root(tell(an_end(0), Recorded(text, "", T0, 0.0), None))
    assert failure.message.endswith(
        "unhandled system error; socketStartConnect: Connect to 1.2.3.4<5> failed"
    )
    assert failure.retryable


def test_what_a_loaders_worker_raised_is_the_message() -> None:
    text = (
        "ValueError: Caught ValueError in DataLoader worker process 1.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/w/train.py", line 6, in __getitem__\n'
        "    raise ValueError(bad)\nValueError: bad sample 3\n"
    )
    failure = root(tell(an_end(0, code=1), Recorded(text, "", T0, 0.0), None))
    assert failure.message == "ValueError: bad sample 3"
    assert failure.frame is not None
    assert failure.frame.function == "__getitem__"


def test_who_failed_of_its_own_beside_the_root_is_told_and_victims_are_not() -> None:
    words = [
        ended(0, "ValueError: x"),
        ended(1, "ValueError: x", after=0.1),
        ended(2, CLOSED, after=0.1),
        ended(3, code=-15, after=0.2),
        ended(4, code=0),
    ]
    assert [(one.rank, one.identity) for one in other_failures(words, choose_root(words))] == [
        (1, "ValueError: x")
    ]
    assert other_failures(words[4:], choose_root(words[4:])) == ()
