"""What a stream keeps in memory, and what it lets go."""

from __future__ import annotations

from rankscope.agent.logs.stream import Limits, Stream

LIMITS = Limits(kept_bytes=10, memory_bytes=100)


def a_stream(*, has_console: bool = True) -> Stream:
    return Stream(slot=0, fifo="/f", fd=9, file="/l", has_console=has_console, resumed=False)


def test_what_is_neither_filed_nor_shown_stays() -> None:
    stream = a_stream()
    stream.append(b"x" * 500)
    stream.trim(LIMITS)
    assert (stream.base, stream.total, stream.unfiled_bytes, stream.unshown_bytes) == (0, 500, 500, 500)


def test_a_lagging_console_keeps_only_the_newest_of_what_the_file_has() -> None:
    stream = a_stream()
    stream.append(bytes(range(200)))
    stream.filed, stream.shown = 200, 20
    stream.trim(LIMITS)
    assert stream.base == 190
    assert stream.read(195, 3) == bytes([195, 196, 197])


def test_a_lagging_file_keeps_everything_it_needs() -> None:
    stream = a_stream()
    stream.append(b"x" * 500)
    stream.filed, stream.shown = 50, 500
    stream.trim(LIMITS)
    assert stream.base == 50


def test_without_a_file_the_oldest_goes_when_the_console_lags() -> None:
    stream = a_stream()
    stream.append(b"x" * 500)
    stream.file_failed = True
    stream.trim(LIMITS)
    assert (stream.base, stream.unfiled_bytes, stream.unshown_bytes) == (400, 0, 500)


def test_with_neither_file_nor_console_nothing_stays() -> None:
    stream = a_stream(has_console=False)
    stream.append(b"x" * 500)
    stream.file_failed = True
    stream.trim(LIMITS)
    assert stream.base == 500


def test_a_stream_is_done_when_it_has_ended_and_all_have_taken_all() -> None:
    stream = a_stream()
    stream.append(b"abc")
    stream.ended = True
    assert not stream.done
    stream.filed = 3
    assert not stream.done
    stream.shown = 3
    assert stream.done


def test_what_the_drain_before_left_unshown_counts_as_unshown() -> None:
    stream = a_stream()
    stream.shown = -7
    stream.append(b"abc")
    stream.filed = 3
    stream.trim(LIMITS)
    assert stream.unshown_bytes == 10
