"""Reads what NCCL's watchdog, the debug mode DETAIL and torch's own analyses say of collectives.

The forms of torch 1.12 to 2.13. Ranks within a group are not global ones: the watchdog's ``[Rank 1]`` counts
only where no group, or the default one, is named. A rank whose tensors have another number of dimensions is
misread by torch 2.13 ("SequenceNumber=0OpType=SCATTER", measured): what a line says of it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from rankscope.diag.model import Collective, FlightRecord, Frame, RecordedGroup
from rankscope.diag.read import FactKind, LogFact
from rankscope.diag.read.log_tracebacks import is_library

_LONGEST: Final = 500
_MOST_RANKS: Final = 4_096
_MAX: Final = 2**63 - 1
_GROUP: Final = re.compile(
    r"\[PG (?:ID )?(\d{1,9})(?: PG GUID ([\w-]{1,100}))? ?(?:\(([^()]{0,100})\))?,? Rank (\d{1,9})\]"
)
# Torch's own name of the writer, where an unknown text before it hid it.
_GLOBAL_RANK: Final = re.compile(r"\[rank(\d{1,7})\]:")
_LOCAL_RANK: Final = re.compile(r"\[Rank (\d{1,9})\]")
_WORK: Final = re.compile(r"Work\w{1,10}\((.{1,400}?)\) ran for (\d{1,15}) milliseconds")
_FIELD: Final = re.compile(r"(\w{1,30}(?:\(ms\))?)=(\[[^\]]{0,200}\]|[^,()\[\]]{1,100})")
_AT_WORK: Final = re.compile(r"(?:at work(?: sequence id)?|at NCCL work): ?(-?\d{1,18})")
_LAST: Final = re.compile(r"[Ll]ast (enqueued|started|completed)(?: \w{1,10})? work: ?(-?\d{1,18})")
# Said by a rank that did not run out of time, when another did (torch's ``getNCCLWatchdogTimeoutErrorMsg``).
_SIGNAL: Final = re.compile(r"Received a (?:dump signal due to a collective|global) timeout from")
_STUCK: Final = re.compile(r"watchdog got stuck for (\d{1,12}) ?(milliseconds|ms|seconds|s)\b")
_PRINT: Final = re.compile(
    r"Rank (\d{1,9}) is running collective: CollectiveFingerPrint"
    r"\((?:SequenceNumber=(\d{1,18})(?:, )?)?OpType=(\w{1,40})"
    r"(?:, TensorShape=\[([\d, ]{0,400})\], TensorDtypes=([\w, ]{0,200}?), TensorDevice)?"
)
_CULPRIT: Final = re.compile(r"Culprit rank (\d{1,9})")
_MISSING: Final = re.compile(r"missing ranks: \{([\d, ]{1,40000})\}")
_LAGGING: Final = re.compile(
    r"\[([\d, ]{1,40000})\]"
    r" (?:are the lagging ranks|joined but didn't finish|finished collective #\d{1,18}, but didn't)"
)
_BARRIER: Final = re.compile(
    r"Ranks? ([\d, ]{1,40000}) (?:failed to pass|timed out in) monitoredBarrier (?:in|after) (\d{1,15}) ?ms"
)
# torch's ``OpType`` as the flight record names the operation; others are its lower case.
_OPS: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "allreduce_coalesced",
    "ALLGATHER": "all_gather",
    "ALLGATHER_COALESCED": "all_gather_into_tensor_coalesced",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "_ALLGATHER_BASE": "_all_gather_base",
}
_P2P: Final = frozenset({"SEND", "RECV", "RECVANYSOURCE"})


class CollectiveReader:
    """Single lines of one writer; remembers what its watchdog found, for the status on the next line."""

    def __init__(self) -> None:
        self._timed_out: dict[tuple[int | None, int], Collective] = {}
        self._newest: dict[int | None, Collective] = {}
        self._told: dict[tuple[int | None, str], RecordedGroup] = {}

    def feed(self, text: str, *, number: int, rank: int | None, time: float | None) -> list[LogFact]:
        """The facts that stand on a line."""
        if "atchdog" in text or "at NCCL work" in text or _SIGNAL.search(text):
            fact = self._watchdog(text, number=number, rank=rank, time=time)
            return [fact] if fact else []
        if "CollectiveFingerPrint" in text:
            fact = _mismatch(text, number=number, rank=rank, time=time)
            return [fact] if fact else []
        if "monitoredBarrier" in text:
            return _barrier(text, number=number, rank=rank, time=time)
        return _named(text, number=number, time=time)

    def _watchdog(self, text: str, *, number: int, rank: int | None, time: float | None) -> LogFact | None:
        group, rank = _group_and_rank(text, rank)
        stuck = _STUCK.search(text)
        if stuck:
            seconds = int(stuck[1]) / (1000 if stuck[2].startswith("m") else 1)
            return LogFact(
                "watchdog_stuck", _from(text, stuck.start()), number, rank, 0, time, seconds=seconds
            )
        work = _WORK.search(text)
        if work:
            entry = _work(work[1], group)
            if entry is None:
                return None
            if len(self._timed_out) < _MOST_RANKS:
                self._timed_out[rank, entry.seq] = self._newest[rank] = entry
            record = FlightRecord(() if group is None else (group,), (entry,), rank=rank)
            start = max(text.rfind("Watchdog caught", 0, work.start()), 0)
            return LogFact(
                "watchdog_timeout",
                _from(text, start),
                number,
                rank,
                0,
                time,
                None,
                record,
                None,
                int(work[2]) / 1000,
            )
        at, signal = _AT_WORK.search(text), _SIGNAL.search(text)
        last = {word: int(value) for word, value in _LAST.findall(text)}
        found = at or signal
        if found is None or not last:
            return None
        seq = int(at[1]) if at else -1
        return self._status(text[found.start() :], seq, last, group, number=number, rank=rank, time=time)

    def _status(
        self,
        text: str,
        seq: int,
        last: dict[str, int],
        group: RecordedGroup | None,
        *,
        number: int,
        rank: int | None,
        time: float | None,
    ) -> LogFact | None:
        """A group's status at the collective that ran out of time, or (-1) on a rank told of another's."""
        known = self._timed_out.get((rank, seq))
        name, description = (group.name, group.description) if group else ("", "")
        recorded = RecordedGroup(name, description, (), **{f"{word}": value for word, value in last.items()})
        if seq < 0 and self._told.get((rank, name)) == recorded:
            return None  # its own watchdog said so before
        if len(self._told) < _MOST_RANKS:
            self._told[rank, name] = recorded
        entries: tuple[Collective, ...] = ()
        if known is not None:
            entries = (Collective(name, seq, known.op, known.is_p2p, input_sizes=known.input_sizes,
                                  output_sizes=known.output_sizes),)  # fmt: skip
            self._newest[rank] = entries[0]
        record = FlightRecord((recorded,), entries, rank=rank)
        end = max(found.end() for found in _LAST.finditer(text))
        kind: FactKind = "watchdog_timeout" if seq >= 0 else "watchdog_status"
        return LogFact(kind, _from(text[:end], 0), number, rank, 0, time, record=record)

    def called_from(
        self, frames: Sequence[Frame], *, number: int, rank: int | None, time: float | None
    ) -> LogFact | None:
        """The call that ran out of time last, with the stack that was printed of it, leaf first."""
        entry = self._newest.get(rank)
        if entry is None or not frames:
            return None
        called = msgspec.structs.replace(entry, frames=tuple(frames))
        shown = [one for one in frames if not is_library(one.file)] or frames[:1]
        places = ", ".join(f"{one.function} ({one.file}:{one.line})" for one in shown)
        text = f"Stack trace of the failed collective: {places}"[:_LONGEST]
        record = FlightRecord((), (called,), rank=rank)
        return LogFact("watchdog_timeout", text, number, rank, 0, time, record=record)


def _group_and_rank(text: str, rank: int | None) -> tuple[RecordedGroup | None, int | None]:
    if rank is None and (own := _GLOBAL_RANK.search(text)):
        rank = int(own[1])
    found = _GROUP.search(text)
    if found is None:
        local = _LOCAL_RANK.search(text)
        return None, rank if rank is not None or local is None else int(local[1])
    name, description = found[2] or found[1], found[3] or ""
    if rank is None and (description == "default_pg" or (not description and name == "0")):
        rank = int(found[4])
    return RecordedGroup(name, description), rank


def _work(fields: str, group: RecordedGroup | None) -> Collective | None:
    """``SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, ...``; sizes are those of flattened tensors."""
    values = dict(_FIELD.findall(fields))
    kind = values.get("OpType", "").strip()
    if not kind:
        return None
    return Collective(
        group=group.name if group else "",
        seq=_digits(values.get("SeqNum", "")),
        op=operation(kind),
        is_p2p=kind in _P2P,
        input_sizes=_numel(values.get("NumelIn")) or _shape(values.get("TensorShape", "").strip("[]")),
        output_sizes=_numel(values.get("NumelOut")),
    )


def operation(kind: str) -> str:
    """``ALLREDUCE`` as a flight record names it: ``all_reduce``."""
    return _OPS.get(kind, kind.lower())


def _mismatch(text: str, *, number: int, rank: int | None, time: float | None) -> LogFact | None:
    found = list(_PRINT.finditer(text))
    if not found:
        return None
    own, others = found[0], found[1:]
    if rank is None:
        rank = int(own[1])
    other: tuple[int, FlightRecord] | None = None
    if others:
        misread = others[0][4] is None and int(others[0][2] or 0) == 0 < int(own[2] or 0)
        record = (
            FlightRecord() if misread else FlightRecord((), (_printed(others[0]),), rank=int(others[0][1]))
        )
        other = int(others[0][1]), record
    return LogFact(
        "mismatch",
        _from(text, max(text.find("Detected mismatch"), 0)),
        number,
        rank,
        0,
        time,
        record=FlightRecord((), (_printed(own),), rank=rank),
        other=other,
    )


def _printed(found: re.Match[str]) -> Collective:
    shape = _shape(found[4]) if found[4] is not None else ()
    dtypes = tuple(one.strip() for one in found[5].split(",")) if found[5] else ()
    return Collective(
        "", _digits(found[2] or ""), operation(found[3]), input_sizes=shape, input_dtypes=dtypes
    )


def _barrier(text: str, *, number: int, rank: int | None, time: float | None) -> list[LogFact]:
    found = _BARRIER.search(text)
    if found is None:
        return []
    local = _LOCAL_RANK.search(text)
    if rank is None and local:
        rank = int(local[1])
    said = _from(text, found.start())
    waited = LogFact("wait_timeout", said, number, rank, 0, time, seconds=int(found[2]) / 1000)
    return [waited, *(LogFact("flight_recorder", said, number, one, 0, time) for one in _ranks(found[1]))]


def _named(text: str, *, number: int, time: float | None) -> list[LogFact]:
    """Ranks that torch's analyses name: the flight recorder's, and the desync report."""
    ranks = [int(one) for one in _CULPRIT.findall(text)[:_MOST_RANKS]]
    for pattern in (_MISSING, _LAGGING):
        for found in pattern.finditer(text):
            ranks += _ranks(found[1])
    said = _from(text, 0).strip()
    return [
        LogFact("flight_recorder", said, number, rank, 0, time) for rank in dict.fromkeys(ranks[:_MOST_RANKS])
    ]


def _ranks(text: str) -> list[int]:
    return [int(one) for one in text.replace(",", " ").split()[:_MOST_RANKS] if len(one) < 10]  # noqa: PLR2004


def _numel(value: str | None) -> tuple[tuple[int, ...], ...]:
    return ((_digits(value),),) if value and value.strip().isdigit() else ()


def _shape(text: str) -> tuple[tuple[int, ...], ...]:
    sizes = tuple(_digits(one) for one in text.split(",") if one.strip().isdigit())
    return (sizes,) if sizes else ()


def _digits(text: str) -> int:
    text = text.strip()
    return min(int(text), _MAX) if text.isdigit() and len(text) < 20 else 0  # noqa: PLR2004


def _from(text: str, start: int) -> str:
    return text[start : start + _LONGEST]
