"""Properties of the timers' wire format: what is written is read, and no byte string raises."""

from __future__ import annotations

import json

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
    decode,
    encode_event,
)

PIDS = st.integers(1, 2**31 - 1)
SIGNALS = st.integers(0, 64)
SCOPES = st.text(max_size=300)
TIMES = st.floats(0, 1e11)


@given(PIDS, SCOPES, TIMES, TIMES, SIGNALS)
def test_what_our_client_writes_is_read_as_it_was_meant(
    pid: int, scope: str, expiration: float, monotonic: float, signal: int
) -> None:
    line = ScopeLines(scope, pid=pid, signal=signal).acquire(expiration, monotonic)
    assert line.count(b"\n") == 1
    found = decode(line[:-1])
    assert isinstance(found, FileTimerRequest)
    assert (found.worker_pid, found.scope_id, found.signal) == (pid, scope, signal)
    assert found.monotonic is not None
    assert abs(found.expiration_time - expiration) < 1e-4
    assert abs(found.monotonic - monotonic) < 1e-4


@given(PIDS, SCOPES, TIMES, TIMES, SIGNALS)
def test_the_quick_way_reads_what_json_reads(
    pid: int, scope: str, expiration: float, monotonic: float, signal: int
) -> None:
    line = ScopeLines(scope, pid=pid, signal=signal).acquire(expiration, monotonic)[:-1]
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
    good = ScopeLines("s", pid=7, signal=9).acquire(1e9, 5.0)
    intake = Intake(TimerRegistry(), None)
    intake.take(LineSplitter().feed(junk + good + later), now=0.0, wall=0.0, grace=0.0)
    assert intake.heard() == {7: 0.0}
