"""Reads the entries of a flight record: one operation each, in the field names of every version so far.

Fields and states: torch's ``FlightRecorder.hpp`` and ``FlightRecorderDetail.hpp`` (2.13, record version
2.10); versions 1.x had ``seq_id`` for both sequence numbers and times in microseconds. A NCCL entry says
itself whether it started and completed. A gloo entry stays ``scheduled`` for ever; it is complete when it was
retired *and* the group's status has got that far. Torch 2.13 counts a gloo operation that ran into its
time-out as retired and completed (measured): then only the other ranks' records show that it was not.

It knows plain values only, dicts and lists from JSON or a pickle, which may share parts: whatever is copied
has a budget.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rankscope.diag.model import Collective, Frame

Plain = Mapping[str, object]  # a dict of a record, as JSON or a pickle gave it

MAX_NUMBER: Final = 2**63 - 1
_BUDGET: Final = 4_000_000  # list items copied for one record; 2,000 entries with 20 frames need 50,000
_LONGEST_NAME: Final = 300
_P2P: Final = frozenset({"send", "recv"})
_STATELESS: Final = frozenset({"gloo"})  # backends whose entries stay "scheduled"
_PEERS: Final = re.compile(r"(\w+) (\d{1,9})(?:->|<-)(\d{1,9})")
_FIELDS: Final = (
    "collective_seq_id",
    "p2p_seq_id",
    "is_p2p",
    "profiling_name",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "state",
    "retired",
    "process_group",
    "pg_id",
    "input_sizes",
    "output_sizes",
    "input_dtypes",
    "output_dtypes",
)
_pick: Final = operator.itemgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class _Operation:
    """What ``profiling_name`` says, ``nccl:recv 3<-1``: ``own`` is the rank in the group that recorded it."""

    backend: str
    op: str
    own: int | None = None
    peer: int | None = None


class _Call(NamedTuple):
    """An operation and its tensors; ``written`` is what they were read from: most calls repeat the last."""

    written: tuple[Any, ...]
    operation: _Operation
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


@dataclass(slots=True)
class EntryReader:
    """Reads the entries of one record; what is shared between them is read once.

    Attributes:
        completed: last completed collective by ``pg_id``, from the record's status.
        members: global ranks by group name, as far as the record tells them.
        own_ranks: global ranks that sends and receives say their recorder has: one, if they are right.
    """

    completed: dict[int, int]
    members: dict[str, tuple[int, ...]]
    own_ranks: set[int] = field(default_factory=set[int])
    _left: int = _BUDGET
    _operations: dict[str, _Operation] = field(default_factory=dict[str, _Operation])
    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])  # the last of each operation
    _stacks: dict[tuple[int, ...], tuple[Frame, ...]] = field(
        default_factory=dict[tuple[int, ...], tuple[Frame, ...]]
    )
    _shapes: dict[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]] = field(
        default_factory=dict[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
    )
    _dtypes: dict[tuple[str, ...], tuple[str, ...]] = field(
        default_factory=dict[tuple[str, ...], tuple[str, ...]]
    )

    @property
    def ops(self) -> set[str]:
        """Every operation that was read so far."""
        return {operation.op for operation in self._operations.values()}

    def read(self, entry: object, *, is_old: bool = False) -> Collective | None:
        """One entry, ``None`` when it is not one. What it shares with other entries must stay alive.

        Args:
            entry: as it was written.
            is_old: whether so many came after it that its stack is wanted only if it did not end.
        """
        if type(entry) is not dict:
            return None
        try:
            row: tuple[Any, ...] = _pick(entry)
        except KeyError:
            row = _older(entry)
        try:
            return self._collective(row, entry.get("frames"), is_old=is_old)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError):
            return None

    def _collective(self, row: tuple[Any, ...], frames: Any, *, is_old: bool) -> Collective:
        (seq, p2p_seq, is_p2p, name, created, started, ended, state, retired, group, pg_id) = row[:11]
        if type(name) is not str or (type(pg_id) is not int and pg_id is not None):
            raise TypeError  # a pickle may have tuples there that nest too deeply to be hashed
        call = self._calls.get(name)
        if call is None or call.written != row[11:]:
            call = self._call(name, row[11:])
        operation = call.operation
        if is_p2p is None:
            is_p2p = operation.op in _P2P
        number = p2p_seq if is_p2p else seq
        if type(number) is not int or not 0 <= number <= MAX_NUMBER:
            number = number_of(number, least=0)
        group_name, description = group
        if type(group_name) is not str:
            raise TypeError
        completed = state == "completed"
        is_started: bool | None = completed or state == "started"
        if not is_started and operation.backend in _STATELESS:
            is_started = None
            completed = bool(retired) and (
                is_p2p or number <= self.completed.get(-1 if pg_id is None else pg_id, number)
            )
        return Collective(
            group_name,
            number,
            operation.op,
            bool(is_p2p),
            completed,
            is_started,
            call.input_sizes,
            call.output_sizes,
            call.input_dtypes,
            call.output_dtypes,
            _time(created) if created else 0,
            _time(started) if started else 0,
            _time(ended) if ended else 0,
            self._stack(frames) if frames and not (is_old and completed) else (),
            None if operation.peer is None else self._peer(operation, group_name, description),
        )

    def _call(self, name: str, written: tuple[Any, ...]) -> _Call:
        ins, outs, in_types, out_types = written
        call = _Call(
            written,
            self._operations.get(name) or self._operation(name),
            self._shape(ins),
            self._shape(outs),
            self._dtype(in_types),
            self._dtype(out_types),
        )
        self._calls[name] = call
        return call

    def _operation(self, name: str) -> _Operation:
        if len(name) > _LONGEST_NAME:
            raise ValueError
        backend, colon, rest = name.partition(":")
        if not colon:
            backend, rest = "", name
        parts = _PEERS.fullmatch(rest)
        operation = _Operation(backend, rest.partition(" ")[0])
        if parts:
            operation = _Operation(backend, parts[1], int(parts[2]), int(parts[3]))
        self._operations[name] = operation
        return operation

    def _peer(self, operation: _Operation, group: str, description: object) -> int | None:
        """The global rank of the peer: ranks stand there as they are numbered within the group."""
        members = self.members.get(group)
        own, peer = operation.own, operation.peer
        if members is None:
            if description != "default_pg" or own is None:
                return None
        elif own is None or peer is None or max(own, peer) >= len(members):
            return None
        else:
            own, peer = members[own], members[peer]
        self.own_ranks.add(own)
        return peer

    def _shape(self, sizes: Any) -> tuple[tuple[int, ...], ...]:
        if not sizes:
            return ()
        self._spend(len(sizes) + (len(sizes[0]) if len(sizes) == 1 else sum(map(len, sizes))))
        # index() lets nothing through that is dear, or dangerous, to hash.
        shape = tuple(tuple(map(operator.index, one)) for one in sizes)
        return self._shapes.get(shape) or self._new_shape(shape)

    def _new_shape(self, shape: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if any(not -1 <= size <= MAX_NUMBER for one in shape for size in one):
            raise ValueError
        return self._shapes.setdefault(shape, shape)

    def _dtype(self, names: Any) -> tuple[str, ...]:
        if not names:
            return ()
        self._spend(len(names))
        "".join(names)  # all are strings
        if type(names) not in (list, tuple) or max(map(len, names)) > _LONGEST_NAME:
            raise TypeError
        dtypes = tuple(names)
        return self._dtypes.setdefault(dtypes, dtypes)

    def _stack(self, frames: Any) -> tuple[Frame, ...]:
        """Frames, leaf first as torch writes them; equal stacks are one object."""
        self._spend(len(frames))
        key = tuple(map(id, frames))
        known = self._stacks.get(key)
        if known is None:
            known = tuple(
                _frame(one["name"], one["filename"], one["line"])
                for one in frames
                if type(one) is dict
                and type(one["line"]) is int
                and type(one["name"]) is type(one["filename"]) is str
            )
            # Torch writes a frame again for each address it was called from.
            known = self._stacks.setdefault(tuple(map(id, known)), known)
            self._stacks[key] = known
        return known

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError


def number_of(value: object, *, least: int = -1) -> int:
    """A number, also as the digits that JSON has in ``pg_status``; raises ``ValueError`` for others."""
    if isinstance(value, str) and len(value) < 24:  # noqa: PLR2004  what int() takes, and no more
        value = int(value)
    if not isinstance(value, int) or not least <= value <= MAX_NUMBER:
        raise ValueError("not a number")
    return int(value)


def _time(value: Any) -> int:
    """Nanoseconds; unknown times are ``None`` in a pickle and 0 in JSON."""
    if not value:
        return 0
    return value if type(value) is int and 0 < value <= MAX_NUMBER else number_of(value, least=0)


@functools.lru_cache(maxsize=20_000)
def _frame(function: str, file: str, line: int) -> Frame:
    return Frame(function, file, line if 0 <= line <= MAX_NUMBER else 0)


def _older(entry: dict[str, Any]) -> tuple[Any, ...]:
    """The same fields from an entry of another version, ``None`` for those that it lacks."""
    values = {name: entry.get(name) for name in _FIELDS}
    for name in ("collective_seq_id", "p2p_seq_id"):
        if values[name] is None:
            values[name] = entry.get("seq_id", 0 if name == "p2p_seq_id" else None)
    for name in ("time_created", "time_discovered_started", "time_discovered_completed"):
        micro = entry.get(f"{name}_us")
        if values[f"{name}_ns"] is None and type(micro) is int and 0 < micro <= MAX_NUMBER // 1000:
            values[f"{name}_ns"] = micro * 1000
    group = values["process_group"]
    if not isinstance(group, (tuple, list)) or len(group) != 2:  # noqa: PLR2004  name and description
        values["process_group"] = (entry.get("pg_name", ""), "")
    return tuple(values[name] for name in _FIELDS)
