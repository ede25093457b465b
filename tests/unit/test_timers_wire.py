"""Timers without a pipe: the lines, the registry's decisions and what is done with bad lines."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
from collections.abc import Callable

import pytest

from rankscope.watchdog.timers import Event, FileTimerRequest, OversizeRequestError, TimerClient, expires
from rankscope.watchdog.timers.intake import Intake
from rankscope.watchdog.timers.liveness import is_running
from rankscope.watchdog.timers.registry import TimerRegistry, signal_of
from rankscope.watchdog.timers.wire import (
    MAX_LINE_BYTES,
    LineSplitter,
    ScopeLines,
    Skipped,
    decode,
    encode_event,
)

WALL = 1_700_000_000.0


def a_timer(*, pid: int = 7, scope: str = "s", left: float = 10.0, signal: int = 9) -> FileTimerRequest:
    """A request of ours made at monotonic 0."""
    return FileTimerRequest(pid, scope, WALL + left, signal, left, left)


def a_release(*, pid: int = 7, scope: str = "s") -> FileTimerRequest:
    return FileTimerRequest(pid, scope, -1.0)


def a_registry(*requests: FileTimerRequest) -> TimerRegistry:
    registry = TimerRegistry()
    for request in requests:
        registry.handle(request, now=0.0, wall=WALL)
    return registry


def expired_scopes(registry: TimerRegistry, now: float) -> list[str]:
    return [request.scope_id for each in registry.expired(now) for request in each.requests]


def kind_of(line: bytes) -> str:
    found = decode(line)
    return found.kind if isinstance(found, Skipped) else "good"


def take(*lines: bytes, is_known_pid: Callable[[int], bool] | None = None) -> tuple[Intake, list[Event]]:
    intake = Intake(TimerRegistry(), is_known_pid)
    return intake, intake.take(lines, now=0.0, wall=WALL, grace=0.0)


def test_torchs_line_is_read() -> None:
    line = b'{"version": 1, "pid": 7, "scope_id": "a b", "expiration_time": 1.5, "signal": 9}'
    assert decode(line) == FileTimerRequest(7, "a b", 1.5, 9, None)


def test_our_line_carries_torchs_four_keys_and_the_monotonic_expiry() -> None:
    line = ScopeLines("a", pid=7, signal=9).acquire(1.5, 0.5, 0.25)
    assert json.loads(line) == {
        "version": 1,
        "pid": 7,
        "scope_id": "a",
        "expiration_time": 1.5,
        "signal": 9,
        "monotonic": 0.5,
        "after": 0.25,
    }


def test_a_timer_that_never_expires_is_still_json() -> None:
    found = decode(ScopeLines("a%.6f", pid=7, signal=9).acquire(math.inf, math.inf, math.inf)[:-1])
    assert found == FileTimerRequest(7, "a%.6f", math.inf, 9, math.inf, math.inf)


def test_a_scope_over_one_atomic_write_is_refused_and_the_error_says_so() -> None:
    with pytest.raises(OversizeRequestError, match=f"not be longer than {MAX_LINE_BYTES} bytes"):
        ScopeLines("x" * MAX_LINE_BYTES, pid=7, signal=9)


def test_the_longest_accepted_scope_fits_in_one_atomic_write() -> None:
    for length in range(MAX_LINE_BYTES - 200, MAX_LINE_BYTES):
        try:
            lines = ScopeLines("x" * length, pid=2**22, signal=64)
        except OversizeRequestError:
            break
        far = 999_999_999_999.0
        assert len(lines.acquire(far, -far, -far)) <= MAX_LINE_BYTES
    else:
        pytest.fail("no scope was refused")


def test_a_request_offers_torchs_attributes() -> None:
    request = FileTimerRequest(7, "a", 1.5, signal.SIGKILL)
    assert (request.worker_id, request.worker_pid, request.version) == (7, 7, 1)
    expected = {"version": 1, "pid": 7, "scope_id": "a", "expiration_time": 1.5, "signal": 9}
    assert json.loads(request.to_json()) == expected


def test_an_event_comes_back_with_its_data() -> None:
    line = encode_event(Event("raised", 7, {"rank": 3, "text": "boom\n"}))
    assert decode(line[:-1]) == Event("raised", 7, {"rank": 3, "text": "boom\n"})


def test_an_event_over_one_atomic_write_is_refused() -> None:
    with pytest.raises(OversizeRequestError):
        encode_event(Event("raised", 7, {"text": "x" * MAX_LINE_BYTES}))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"", "malformed"),
        (b"\x00\xff\xfe", "malformed"),
        (b"[1,2]", "malformed"),
        (b'{"version":1,"pid":7,"scope_id":"s","expiration_time":', "malformed"),
        (b'{"version":1,"pid":0,"scope_id":"s","expiration_time":1.0,"signal":9}', "malformed"),
        (b'{"version":1,"pid":-1,"scope_id":"s","expiration_time":1.0,"signal":9}', "malformed"),
        (b'{"version":1,"pid":true,"scope_id":"s","expiration_time":1.0,"signal":9}', "malformed"),
        (b'{"version":1,"pid":7,"scope_id":3,"expiration_time":1.0,"signal":9}', "malformed"),
        (b'{"version":1,"pid":7,"scope_id":"s","expiration_time":NaN,"signal":9}', "malformed"),
        (
            b'{"version":1,"pid":7,"scope_id":"s","expiration_time":1' + b"0" * 400 + b',"signal":9}',
            "malformed",
        ),
        (b'{"version":1,"pid":7,"scope_id":"s","expiration_time":1.0}', "malformed"),
        (b"[" * 4000, "malformed"),
        (b'{"version":2,"pid":7,"scope_id":"s","expiration_time":1.0,"signal":9}', "unknown_version"),
        (b'{"rankscope":2,"event":"raised","pid":7}', "unknown_version"),
        (b'{"rankscope":1,"event":5,"pid":7}', "malformed"),
        (b"x" * (MAX_LINE_BYTES + 1), "oversize"),
    ],
)
def test_a_bad_line_is_named_by_kind(line: bytes, kind: str) -> None:
    assert kind_of(line) == kind


def test_a_long_leftover_is_bounded_and_the_next_line_is_read() -> None:
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 60_000)]
    lines += splitter.feed(b"\nnext\n")
    assert [len(line) for line in lines] == [MAX_LINE_BYTES + 1, 4]


def test_a_timer_expires_at_its_time_and_once() -> None:
    registry = a_registry(a_timer(left=10.0))
    assert expired_scopes(registry, 9.9) == []
    assert registry.next_deadline() == 10.0
    assert expired_scopes(registry, 10.0) == ["s"]
    assert expired_scopes(registry, 11.0) == []
    assert registry.next_deadline() == math.inf


def test_a_released_timer_does_not_expire() -> None:
    assert expired_scopes(a_registry(a_timer(), a_release()), 100.0) == []


def test_setting_a_timer_again_moves_its_expiry() -> None:
    registry = a_registry(a_timer(left=10.0), a_timer(left=20.0))
    assert expired_scopes(registry, 15.0) == []
    assert expired_scopes(registry, 20.0) == ["s"]


def test_what_is_left_of_torchs_timer_is_fixed_at_receipt_so_that_a_clock_step_moves_nothing() -> None:
    registry = TimerRegistry()
    registry.handle(FileTimerRequest(7, "s", WALL + 10, 9), now=100.0, wall=WALL)
    assert registry.next_deadline() == 110.0


def test_our_timer_keeps_its_monotonic_expiry_whatever_the_wall_clock_says() -> None:
    registry = TimerRegistry()
    registry.handle(a_timer(left=10.0), now=0.0, wall=WALL + 3600)
    assert expired_scopes(registry, 9.0) == []


def test_a_request_that_was_long_on_its_way_has_the_time_it_was_written_with() -> None:
    registry = TimerRegistry()
    registry.handle(a_timer(left=10.0), now=30.0, wall=WALL + 30, grace=30.0)
    assert registry.next_deadline() == 40.0
    registry.handle(a_timer(left=10.0), now=0.2, wall=WALL)
    assert [timer.seconds_left for timer in registry.active(0.0)] == [10.0]


def test_a_timer_that_was_overdue_when_it_was_set_expires_at_once() -> None:
    registry = TimerRegistry()
    registry.handle(FileTimerRequest(7, "s", WALL - 60, 9, 40.0, -60.0), now=100.0, wall=WALL)
    assert expired_scopes(registry, 100.0) == ["s"]


def test_paused_time_is_given_back() -> None:
    registry = a_registry(a_timer(left=10.0))
    registry.give_back(60.0)
    assert expired_scopes(registry, 69.0) == []
    assert expired_scopes(registry, 70.0) == ["s"]


def test_a_full_pipe_keeps_timers_from_expiring_for_a_moment_but_not_for_ever() -> None:
    registry = a_registry(a_timer(left=10.0))
    registry.withhold(10.0)
    assert registry.next_deadline() == 11.0
    assert expired_scopes(registry, 10.5) == []
    for tenths in range(105, 200):
        registry.withhold(tenths / 10)
    assert expired_scopes(registry, 19.9) == []
    assert expired_scopes(registry, 20.0) == ["s"]


def test_timers_of_a_process_expire_together_the_earliest_first() -> None:
    registry = a_registry(
        a_timer(scope="late", left=9.0), a_timer(scope="early", left=5.0), a_timer(pid=8, left=7.0)
    )
    found = registry.expired(10.0)
    assert [(each.pid, [r.scope_id for r in each.requests]) for each in found] == [
        (7, ["early", "late"]),
        (8, ["s"]),
    ]


def test_the_first_expired_request_that_names_a_signal_is_carried_out() -> None:
    none, some = a_timer(signal=0), a_timer(signal=15)
    assert signal_of([none, some]) == some
    assert signal_of([none]) is None
    assert signal_of([a_timer(signal=65), a_timer(signal=-9)]) is None


def test_cleared_processes_have_no_timers() -> None:
    registry = a_registry(a_timer(pid=7), a_timer(pid=8))
    registry.clear({7})
    assert [timer.pid for timer in registry.active(0.0)] == [8]


def test_active_timers_tell_the_seconds_left() -> None:
    registry = a_registry(a_timer(scope="b", left=9.0), a_timer(scope="a", left=5.0))
    assert registry.active(4.0) == [(7, "a", 1.0), (7, "b", 5.0)]


def test_bad_lines_are_counted_by_kind_and_each_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    good = ScopeLines("a", pid=7, signal=9).release[:-1]
    with caplog.at_level(logging.WARNING):
        intake, _ = take(b"junk", b"junk", good, b"x" * 5000, b"\xff", good)
    counts = intake.counts(expired=0)
    assert counts.skipped == {"malformed": 3, "oversize": 1}
    assert counts.requests == 2
    assert len(caplog.records) == 2


def test_a_good_line_behind_a_dead_writers_leftover_is_still_taken() -> None:
    good = ScopeLines("a", pid=7, signal=9).release[:-1]
    intake, _ = take(good[:50] + good)
    assert intake.counts(expired=0).requests == 1
    assert intake.counts(expired=0).skipped == {"malformed": 1}


def test_an_unknown_process_is_asked_about_once_a_second_and_then_counted() -> None:
    asked: list[int] = []

    def is_known(pid: int) -> bool:
        asked.append(pid)
        return pid == 7

    known, unknown = (ScopeLines("a", pid=pid, signal=9).release[:-1] for pid in (7, 8))
    intake, events = take(
        known, unknown, known, unknown, encode_event(Event("raised", 8)), is_known_pid=is_known
    )
    assert asked == [7, 8]
    assert events == []
    assert intake.counts(expired=0).requests == 2
    assert intake.counts(expired=0).skipped == {"unknown_pid": 1}, "an event is not kept"
    assert intake.next_question() == 1.0
    intake.ask_again(0.9)
    assert asked == [7, 8]
    intake.ask_again(1.0)
    assert asked == [7, 8, 8]
    assert intake.counts(expired=0).skipped == {"unknown_pid": 3}
    assert intake.next_question() == math.inf


def test_what_a_process_wrote_before_it_was_known_is_taken_in_order_and_at_its_own_time() -> None:
    known: set[int] = set()
    registry = TimerRegistry()
    intake = Intake(registry, known.__contains__)
    lines = ScopeLines("a", pid=7, signal=9)
    torchs = FileTimerRequest(7, "torch", WALL + 10, 9).to_json().encode()
    wanted = [lines.acquire(WALL + 5, 5.0, 5.0)[:-1], lines.release[:-1], torchs]
    intake.take(wanted, now=0.0, wall=WALL, grace=0.0)
    known.add(7)
    intake.take([lines.acquire(WALL + 9, 9.0, 7.0)[:-1]], now=2.0, wall=WALL + 2, grace=0.0)
    assert [(timer.scope, timer.seconds_left) for timer in registry.active(2.0)] == [
        ("a", 7.0),
        ("torch", 8.0),
    ]
    assert intake.counts(expired=0).requests == 4
    assert intake.counts(expired=0).skipped == {}


def test_what_strangers_write_fills_no_memory() -> None:
    line = ScopeLines("a", pid=8, signal=9).acquire(WALL, 0.0, 0.0)[:-1]
    intake, _ = take(*[line] * 5000, is_known_pid=lambda _pid: False)
    assert intake.counts(expired=0).skipped["unknown_pid"] == 5000 - 1024
    intake.clear([8])
    assert intake.counts(expired=0).skipped["unknown_pid"] == 5000


def test_a_process_that_started_after_its_timer_is_another_one() -> None:
    assert is_running(os.getpid())
    assert not is_running(os.getpid(), seconds_ago=1e9)


class Recorder:
    """A client that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self.calls.append(("acquire", scope_id))

    def release(self, scope_id: str) -> None:
        self.calls.append(("release", scope_id))


def test_expires_names_the_callers_line_and_releases_when_the_block_raises() -> None:
    recorder = Recorder()
    client: TimerClient = recorder
    with pytest.raises(KeyError), expires(after=5, client=client):
        raise KeyError
    assert [call for call, _ in recorder.calls] == ["acquire", "release"]
    assert recorder.calls[0][1].startswith(f"{__file__}#")


def test_expires_wraps_a_function() -> None:
    recorder = Recorder()

    @expires(after=5, scope="work", client=recorder)
    def work() -> int:
        return 3

    assert work() + work() == 6
    assert recorder.calls == [("acquire", "work"), ("release", "work")] * 2


def test_expires_without_a_client_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="configure"):
        expires(after=5)


class Alarmed(Recorder):
    """A client in whose ``acquire`` a signal handler of the program raises."""

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        super().acquire(scope_id, expiration_time)
        raise TimeoutError


def test_a_block_that_is_not_entered_because_an_alarm_raised_leaves_no_timer() -> None:
    client = Alarmed()
    with pytest.raises(TimeoutError), expires(after=5, scope="s", client=client):
        pytest.fail("it was entered")
    assert client.calls == [("acquire", "s"), ("release", "s")]


def test_expires_takes_any_number() -> None:
    with expires(after=10**400, client=Recorder()):
        pass
