"""Properties of the timers' wire format: what is written is read, and no byte string raises."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from rankscope.watchdog.timers.intake import Intake
from rankscope.watchdog.timers.registry import TimerRegistry
from rankscope.watchdog.timers.wire import (
    MAX_LINE_BYTES,
    Event,
    FileTimerRequest,
    LineSplitter,
    ScopeLines,
    as_seconds,
    decode,
    encode_event,
)

PIDS = st.integers(1, 2**31 - 1)
SIGNALS = st.integers(0, 64)
# Lone surrogates too: what os.fsdecode makes of odd bytes.
SCOPES = st.text(st.characters(codec=None), max_size=300)
TIMES = st.floats(0, 1e11)
SPANS = st.floats(-1e11, 1e11)


@given(PIDS, SCOPES, st.tuples(TIMES, SPANS, SPANS), SIGNALS)
def test_what_our_client_writes_is_read_as_it_was_meant(
    pid: int, scope: str, times: tuple[float, float, float], signal: int
) -> None:
    line = ScopeLines(scope, pid=pid, signal=signal).acquire(*times)
    assert len(line) <= MAX_LINE_BYTES
    assert line.count(b"\n") == 1
    found = decode(line[:-1])
    assert isinstance(found, FileTimerRequest)
    assert (found.worker_pid, found.scope_id, found.signal) == (pid, scope, signal)
    found_times = (found.expiration_time, found.monotonic or 0.0, found.after or 0.0)
    assert all(abs(a - b) < 1e-4 for a, b in zip(found_times, times, strict=True))


@given(PIDS, SCOPES, st.tuples(TIMES, SPANS, SPANS), SIGNALS)
def test_the_quick_way_reads_what_json_reads(
    pid: int, scope: str, times: tuple[float, float, float], signal: int
) -> None:
    line = ScopeLines(scope, pid=pid, signal=signal).acquire(*times)[:-1]
    assert decode(line) == decode(json.dumps(json.loads(line)).encode())


@given(PIDS, SCOPES, TIMES, SIGNALS)
def test_what_torch_writes_is_read(pid: int, scope: str, expiration: float, signal: int) -> None:
    request = FileTimerRequest(pid, scope, expiration, signal)
    assert decode(request.to_json().encode()) == request


@given(PIDS, SCOPES)
def test_a_release_is_read_as_one(pid: int, scope: str) -> None:
    found = decode(ScopeLines(scope, pid=pid, signal=9).release[:-1])
    assert isinstance(found, FileTimerRequest)
    assert found.is_release
    assert found[:2] == (pid, scope)


JSON_VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=50)


@given(st.text(max_size=50), PIDS, st.dictionaries(st.text(max_size=20), JSON_VALUES, max_size=5))
def test_an_event_is_read_as_it_was_written(name: str, pid: int, data: dict[str, object]) -> None:
    expected = {key: value for key, value in data.items() if key not in ("rankscope", "event", "pid")}
    assert decode(encode_event(Event(name, pid, data))[:-1]) == Event(name, pid, expected)


@given(st.binary(max_size=3 * MAX_LINE_BYTES))
def test_no_byte_string_makes_the_decoder_raise(line: bytes) -> None:
    decode(line)


LIKE_A_REQUEST = st.dictionaries(
    st.sampled_from(
        ["version", "pid", "scope_id", "expiration_time", "signal", "monotonic", "rankscope", "event"]
    ),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers()),
)


@given(LIKE_A_REQUEST)
def test_no_json_object_makes_the_decoder_raise(fields: dict[str, object]) -> None:
    decode(json.dumps(fields).encode())


@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_lines_are_the_same_however_the_reads_cut_them(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(parts)
    splitter, lines, rest = LineSplitter(), list[bytes](), stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        lines += splitter.feed(rest[:size])
        rest = rest[size:]
    assert lines == stream.split(b"\n")[:-1]


@given(st.binary(max_size=200).filter(lambda junk: b"\n" not in junk), st.binary(max_size=200))
def test_a_good_line_is_taken_whatever_a_dead_writer_left_before_it(junk: bytes, later: bytes) -> None:
    good = ScopeLines("s", pid=7, signal=9).acquire(1e9, 5.0, 5.0)
    intake = Intake(TimerRegistry(), None)
    intake.take(LineSplitter().feed(junk + good + later), now=0.0, wall=0.0, grace=0.0)
    assert intake.heard() == {7: 0.0}


GOOD = ScopeLines('a "scope"', pid=7, signal=9).acquire(1e9, 5.0, 5.0)


@given(st.sampled_from([GOOD[:-1], FileTimerRequest(7, "s", 1.5, 9).to_json().encode()]), st.data())
def test_a_line_with_bytes_changed_is_skipped_or_still_makes_sense(line: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line)))
        line = line[:at] + data.draw(st.binary(max_size=3)) + line[at + data.draw(st.integers(0, 3)) :]
    found = decode(line)
    if isinstance(found, FileTimerRequest):
        assert found.worker_pid > 0
        times = (found.expiration_time, found.monotonic, found.after)
        assert not any(math.isnan(each) for each in times if each is not None)
        TimerRegistry().handle(found, now=10.0, wall=1e9)


@given(st.floats() | st.integers(), st.floats() | st.integers())
def test_no_number_makes_a_timer_that_cannot_be_read(expiration: float, after: float) -> None:
    line = ScopeLines("s", pid=7, signal=9).acquire(as_seconds(expiration), 0.0, as_seconds(after))
    found = decode(line[:-1])
    assert isinstance(found, FileTimerRequest) or math.isnan(after)


@given(st.lists(st.binary(min_size=1, max_size=2 * MAX_LINE_BYTES), max_size=8), st.binary(max_size=60))
def test_what_comes_without_newlines_is_bounded_and_the_next_line_is_read(
    chunks: list[bytes], cut: bytes
) -> None:
    splitter = LineSplitter()
    for chunk in chunks:
        splitter.feed(chunk.replace(b"\n", b" "))
    first, second = splitter.feed(cut.replace(b"\n", b" ") + b"\n" + GOOD)
    assert len(first) <= MAX_LINE_BYTES + 1 + len(cut)
    assert second == GOOD[:-1]


@given(st.integers(0, len(GOOD) - 1), st.integers(0, len(GOOD) - 1))
def test_a_good_line_is_taken_behind_any_piece_of_others(first: int, second: int) -> None:
    intake = Intake(TimerRegistry(), None)
    intake.take(LineSplitter().feed(GOOD[:first] + GOOD[:second] + GOOD), now=0.0, wall=0.0, grace=0.0)
    assert intake.heard() == {7: 0.0}
