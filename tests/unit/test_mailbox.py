"""Messages to the watch thread: in order, waking whoever waits, and harmless once nobody takes them."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from rankscope.agent.watching.mailbox import Mailbox

MORE_THAN_A_PIPE_HOLDS = 70_000


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    yield box
    box.close()


def nothing() -> None:
    """Do nothing."""


def fail() -> None:
    raise IndexError


def handle(mailbox: Mailbox) -> None:
    for message in mailbox.take():
        message()


def is_awake(mailbox: Mailbox) -> bool:
    return bool(select.select([mailbox.wake_fd], [], [], 0)[0])


def test_messages_are_taken_in_the_order_in_which_they_were_posted(mailbox: Mailbox) -> None:
    taken: list[int] = []
    for number in range(3):
        mailbox.post(partial(taken.append, number))
    handle(mailbox)
    assert taken == [0, 1, 2]
    assert list(mailbox.take()) == []


def test_a_message_that_posts_another_has_it_taken_at_once(mailbox: Mailbox) -> None:
    taken: list[str] = []
    mailbox.post(lambda: mailbox.post(lambda: taken.append("second")))
    handle(mailbox)
    assert taken == ["second"]


def test_a_message_wakes_whoever_waits_until_it_is_taken(mailbox: Mailbox) -> None:
    assert not is_awake(mailbox)
    thread = threading.Thread(target=mailbox.post, args=(nothing,))
    thread.start()
    thread.join()
    assert is_awake(mailbox)
    assert len(list(mailbox.take())) == 1
    assert not is_awake(mailbox)


def test_a_message_that_fails_leaves_the_rest_to_be_taken(mailbox: Mailbox) -> None:
    taken: list[str] = []
    mailbox.post(fail)
    mailbox.post(lambda: taken.append("second"))
    with pytest.raises(IndexError):
        handle(mailbox)
    handle(mailbox)
    assert taken == ["second"]


def test_posting_never_waits_however_many_are_not_taken(mailbox: Mailbox) -> None:
    for _ in range(MORE_THAN_A_PIPE_HOLDS):
        mailbox.post(nothing)
    assert sum(1 for _ in mailbox.take()) == MORE_THAN_A_PIPE_HOLDS
    assert not is_awake(mailbox)


def test_what_is_posted_after_the_end_harms_nobody() -> None:
    mailbox = Mailbox()
    mailbox.close()
    mailbox.post(nothing)
