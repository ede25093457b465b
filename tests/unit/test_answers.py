"""The words between a worker that answers and whoever looks at it."""

from __future__ import annotations

import pytest

from rankscope.watchdog.answers import (
    LONGEST_SOCKET_PATH,
    Answer,
    answer_file,
    fits_socket,
    read_answer,
    socket_file,
    stacks_file,
    write_answer,
)


def test_an_answer_is_read_as_it_was_written() -> None:
    answer = Answer(start_ticks=812, fd=900, main_ident=140688627194752, thread_id=15615)
    assert read_answer(write_answer(answer)) == answer


def test_a_later_version_may_say_more() -> None:
    assert read_answer("1 812 900 7 8 and-more") is None
    assert read_answer("1 812 900 7 8 9") == Answer(812, 900, 7, 8)


@pytest.mark.parametrize("text", ["", "\0", "2 812 900 7 8", "1 812 900 7", "1 -1 900 7 8", "1 ² 900 7 8"])
def test_what_is_no_answer_of_ours_is_none(text: str) -> None:
    assert read_answer(text) is None


def test_the_files_of_a_process_bear_its_number() -> None:
    assert answer_file("/run/x", 7) == "/run/x/7.answer"
    assert stacks_file("/run/x", 7) == "/run/x/7.stacks"
    assert socket_file("/run/x", 7) == "/run/x/7.sock"


def test_a_socket_path_has_107_bytes_at_most() -> None:
    assert fits_socket("/" + "x" * (LONGEST_SOCKET_PATH - 1))
    assert not fits_socket("/" + "x" * LONGEST_SOCKET_PATH)
    assert not fits_socket("/" + "ü" * 60)
