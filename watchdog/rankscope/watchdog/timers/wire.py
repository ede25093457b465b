"""The lines of the timers' named pipe: torch's requests, ours, and our events, one JSON object a line.

Pure: bytes to values and back. It knows no pipe, clock or process. No byte string makes the decoder
raise; what it cannot read comes back as ``Skipped`` with the kind of the fault.

::

    torch   {"version": 1, "pid": 7, "scope_id": "s", "expiration_time": 1.5, "signal": 9}
    ours    {"version":1,"pid":7,"expiration_time":1.500000,"signal":9,"monotonic":0.500000,"after":0.100000,
             "scope_id":"s"}
    event   {"rankscope":1,"event":"raised","pid":7,"rank":3}

``expiration_time`` is the wall clock (seconds since the epoch), negative for a release; ``monotonic`` is
the same moment on CLOCK_MONOTONIC, which a step of the wall clock does not move; ``after`` the seconds that
were left when it was written, from which a server sees how long a line was on its way. torch's server (2.13,
``torch/distributed/elastic/timer/file_based_local_timer.py``) looks up its four keys and ignores ours.
"""

from __future__ import annotations

import json
import math
import re
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

WIRE_VERSION: Final = 1
MAX_LINE_BYTES: Final = select.PIPE_BUF
"""Longest line, its newline included: a write of up to PIPE_BUF bytes is never torn (pipe(7))."""

Kind = Literal["malformed", "oversize", "unknown_version", "unknown_pid"]
"""Why a line was skipped; ``unknown_pid`` is the server's to say."""
Scalar = str | int | float | bool | None

_MAX_PID: Final = 2**31 - 1
_PREVIEW_BYTES: Final = 80
# Field order of our own requests; anything that strays from it takes the way through json, 3x slower.
_TIME: Final = rb"(-?(?:0|[1-9][0-9]{0,11})\.[0-9]{6})"
_TIME_BYTES: Final = 20
_AFTER: Final = b',"after":'
_NEVER: Final = 1e12
_OURS: Final = re.compile(
    rb'\{"version":1,"pid":([1-9][0-9]{0,8}),"expiration_time":%b,"signal":(0|[1-9][0-9]{0,2})'
    rb',"monotonic":%b,"after":%b,"scope_id":"([ !#-\[\]-~]*)"\}' % (_TIME, _TIME, _TIME)
)
# A quote inside a JSON string is escaped, so neither of these can stand within a whole request's strings.
_STARTS: Final = (b'{"version"', b'{"rankscope"')


class FileTimerRequest(NamedTuple):
    """One acquired or released timer; the first four fields are torch's, in torch's order.

    Attributes:
        worker_pid: process that holds the timer.
        scope_id: name of the timer within the process.
        expiration_time: seconds since the epoch; negative for a release.
        signal: signal to end the worker with when the timer expires; 0 or less for none.
        monotonic: expiry on CLOCK_MONOTONIC in seconds, ``None`` in torch's lines.
        after: seconds from writing to expiry, ``None`` in torch's lines.
    """

    worker_pid: int
    scope_id: str
    expiration_time: float
    signal: int = 0
    monotonic: float | None = None
    after: float | None = None

    @property
    def worker_id(self) -> int:
        """The general name that torch has for ``worker_pid``."""
        return self.worker_pid

    @property
    def version(self) -> int:
        """Version of the wire format."""
        return WIRE_VERSION

    @property
    def is_release(self) -> bool:
        """Whether the timer is given up rather than set."""
        return self.expiration_time < 0

    def to_json(self) -> str:
        """The request as torch writes it."""
        return json.dumps(
            {
                "version": WIRE_VERSION,
                "pid": self.worker_pid,
                "scope_id": self.scope_id,
                "expiration_time": self.expiration_time,
                "signal": int(self.signal),
            }
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something a worker tells the agent at once.

    Attributes:
        name: what happened, e.g. ``raised``.
        pid: process that says so.
        data: the rest of the line.
    """

    name: str
    pid: int
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line, or the part of one, that could not be used.

    Attributes:
        kind: which fault.
        detail: what is wrong, for the log.
        preview: how the line begins.
    """

    kind: Kind
    detail: str
    preview: bytes


class OversizeRequestError(RuntimeError):
    """A line would be longer than PIPE_BUF and might be torn (torch raises RuntimeError there too)."""


class ScopeLines:
    """The ready-made bytes of one scope's requests: what does not change is encoded once."""

    __slots__ = ("_head", "_middle", "_tail", "release")

    def __init__(self, scope_id: str, *, pid: int, signal: int) -> None:
        """Encode the fixed parts.

        Raises:
            OversizeRequestError: the scope is too long for one line.
        """
        scope = json.dumps(scope_id).encode()
        self._head = b'{"version":1,"pid":%d,"expiration_time":' % pid
        self._middle = b',"signal":%d,"monotonic":' % signal
        self._tail = b',"scope_id":%b}\n' % scope
        self.release: bytes = b'%b-1.000000,"signal":0,"monotonic":0.000000,"after":0.000000%b' % (
            self._head,
            self._tail,
        )
        longest = len(self._head) + len(self._middle) + len(self._tail) + len(_AFTER) + 3 * _TIME_BYTES
        if longest > MAX_LINE_BYTES:
            raise OversizeRequestError(
                f"timer scope of {len(scope)} bytes: a request may not be longer than {MAX_LINE_BYTES} bytes"
                f" in all, so that lines of several writers are never mixed; use a shorter scope"
                f" (it begins {scope_id[:40]!r})"
            )

    def acquire(self, expiration_time: float, monotonic: float, after: float) -> bytes:
        """The line that sets the timer; all times in seconds, see the module's text.

        What is no time before the year 33658 (infinity, not a number) is a timer that never expires.
        """
        if not expiration_time < _NEVER:
            return b'%bInfinity%bInfinity,"after":Infinity%b' % (self._head, self._middle, self._tail)
        return b'%b%.6f%b%.6f,"after":%.6f%b' % (
            self._head,
            expiration_time,
            self._middle,
            monotonic,
            after,
            self._tail,
        )


def encode_event(event: Event) -> bytes:
    """The line of an event, newline included.

    Raises:
        OversizeRequestError: it is longer than PIPE_BUF.
        TypeError: the data is no JSON.
    """
    fixed: dict[str, object] = {"rankscope": WIRE_VERSION, "event": event.name, "pid": event.pid}
    rest = {key: value for key, value in event.data.items() if key not in fixed}
    line = json.dumps(fixed | rest, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise OversizeRequestError(f"event {event.name!r} of {len(line)} bytes is over {MAX_LINE_BYTES}")
    return line


def decode(line: bytes) -> FileTimerRequest | Event | Skipped:
    """Read one line, given without its newline; never raises."""
    match = _OURS.fullmatch(line)
    if match is None or len(line) >= MAX_LINE_BYTES:
        return _decode_json(line)
    pid, expiration, signal, monotonic, after, scope = match.groups()
    return FileTimerRequest(
        int(pid), scope.decode(), float(expiration), int(signal), float(monotonic), float(after)
    )


def as_seconds(value: float) -> float:
    """A number as a float; an integer too large for one is infinite, as what it stands for."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def resynchronise(line: bytes) -> bytes | None:
    """The last whole request or event inside a spoilt line: a writer died in the middle of one before it.

    Returns:
        What stands after the leftover, ``None`` when the line begins like a request and holds no second.
    """
    at = max(line.rfind(start) for start in _STARTS)
    return line[at:] if at > 0 else None


class LineSplitter:
    """Cuts what is read from the pipe into lines; holds at most one line's worth between reads."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without newlines.

        The beginning of a line that grows past the limit is dropped; its end stays longer than a line
        may be, so that it is recognised as oversize.
        """
        lines = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = lines.pop()[-(MAX_LINE_BYTES + 1) :]
        return lines


def _decode_json(line: bytes) -> FileTimerRequest | Event | Skipped:
    # torch's own check leaves out the newline: a line of its client may be PIPE_BUF bytes without it.
    if len(line) > MAX_LINE_BYTES:
        return _skipped("oversize", f"more than {MAX_LINE_BYTES} bytes", line)
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _skipped("malformed", str(error), line)
    if not isinstance(found, dict):
        return _skipped("malformed", "not a JSON object", line)
    fields: dict[str, object] = {str(key): value for key, value in found.items()}
    try:
        return _event(fields, line) if "rankscope" in fields else _request(fields, line)
    except (TypeError, ValueError, OverflowError) as error:
        return _skipped("malformed", str(error), line)


def _request(fields: Mapping[str, object], line: bytes) -> FileTimerRequest | Skipped:
    version = fields.get("version")
    if version is not None and (version != WIRE_VERSION or isinstance(version, bool)):
        return _skipped("unknown_version", f"version {version!r}", line)
    scope = fields.get("scope_id")
    if not isinstance(scope, str):
        raise TypeError("scope_id is not a string")
    return FileTimerRequest(
        _pid(fields),
        scope,
        _time(fields, "expiration_time"),
        _integer(fields, "signal"),
        *(None if fields.get(key) is None else _time(fields, key) for key in ("monotonic", "after")),
    )


def _event(fields: dict[str, object], line: bytes) -> Event | Skipped:
    version, name, pid = fields.pop("rankscope"), fields.pop("event", None), _pid(fields)
    if version != WIRE_VERSION or isinstance(version, bool):
        return _skipped("unknown_version", f"rankscope {version!r}", line)
    if not isinstance(name, str):
        raise TypeError("event is not a string")
    del fields["pid"]
    return Event(name, pid, fields)


def _integer(fields: Mapping[str, object], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_PID:
        raise ValueError(f"{key} is not an integer")
    return value


def _pid(fields: Mapping[str, object]) -> int:
    pid = _integer(fields, "pid")
    if pid <= 0:
        # kill(0) and kill(-1) would reach whole groups of processes.
        raise ValueError("pid is not positive")
    return pid


def _time(fields: Mapping[str, object], key: str) -> float:
    value = fields.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ValueError(f"{key} is not a number")
    return float(value)


def _skipped(kind: Kind, detail: str, line: bytes) -> Skipped:
    return Skipped(kind, detail, line[:_PREVIEW_BYTES])
