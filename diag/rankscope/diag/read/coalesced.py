"""Coalesced groups in a flight record: several operations that NCCL launches as one, with one state for all.

Between ``_start_coalescing`` and ``_end_coalescing`` (``batch_isend_irecv``, lists of uneven tensors) torch
records each operation without a state, and then a closing entry, ``coalesced``, that has state and times for
all of them and neither tensors nor peers. Collectives inside of a group are written since record version 2.7,
before there is the closing entry alone. The closing entry of sends and receives says ``is_p2p: false`` and
repeats the number of the last *collective*: read as it stands it would take that one's place.

Source: ``ProcessGroupNCCL.cpp`` (torch 2.6 to 2.13); not yet compared with dumps of real GPUs. It knows
entries only, and nothing of other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from rankscope.diag.model import Collective

Entry = tuple[Mapping[str, object], Collective]
"""An entry as it was written, and as it was read."""
_Group = tuple[object, str]  # the rank's own number of it, and its name

_CLOSING: Final = "coalesced"
_SUFFIX: Final = "_coalesced"


def closes_a_group(op: str) -> bool:
    """Whether it is a closing entry: ``coalesced``, ``ALLGATHER_coalesced``; not ``allreduce_coalesced``.

    The last is one operation on several tensors, with all that an entry has.
    """
    return op == _CLOSING or (op.endswith(_SUFFIX) and op.removesuffix(_SUFFIX).isupper())


def has_groups(entries: Sequence[Entry], ops: Iterable[str]) -> bool:
    """Whether a record shows coalesced groups at all: closing entries, or a group without one at its end."""
    if any(map(closes_a_group, ops)):
        return True
    newest = [entry for _, entry in entries[-2:] if not entry.is_p2p and _has_no_state(entry)]
    return len(newest) > 1 and _Run.of(newest[0]).holds(newest[1])


def settle_groups(entries: Sequence[Entry], *, is_whole: bool) -> list[Entry]:
    """Give the operations of coalesced groups the state of their closing entries, which go.

    Args:
        entries: of one record, oldest first.
        is_whole: whether the record reaches back to the first operation. When not, what a process group's
            first entries belong to may be lost.

    Returns:
        The entries: sends and receives with the state of their group; collectives of a group as one entry,
        for they have one number.
    """
    walk = _Walk(is_whole)
    for row, entry in entries:
        walk.take(row, entry)
    return walk.close()


@dataclass(slots=True)
class _Run:
    """The newest entries of one process group that have one number."""

    group: str
    is_p2p: bool
    seq: int
    is_first: bool = False
    at: list[int] = field(default_factory=list[int])

    @classmethod
    def of(cls, entry: Collective) -> _Run:
        return cls(entry.group, entry.is_p2p, entry.seq)

    def holds(self, entry: Collective) -> bool:
        return (self.group, self.is_p2p, self.seq) == (entry.group, entry.is_p2p, entry.seq)


class _Walk:
    """Goes through the entries once; what is left out is ``None`` in the end."""

    def __init__(self, is_whole: bool) -> None:  # noqa: FBT001 - the only argument
        self._is_whole = is_whole
        self._kept: list[Entry | None] = []
        self._runs: dict[_Group, _Run] = {}
        self._collectives: dict[_Group, int] = {}  # the last number

    def take(self, row: Mapping[str, object], entry: Collective) -> None:
        group = (row.get("pg_id"), entry.group)
        if closes_a_group(entry.op):
            self._close_group(group, row, entry)
            # What a later entry of the same number would belong to has been closed.
            self._runs[group] = _Run(entry.group, entry.is_p2p, -1)
            return
        run = self._runs.get(group)
        if run is None or not run.holds(entry) or not _has_no_state(entry):
            is_first = run is None
            run = self._runs[group] = _Run.of(entry)
            run.is_first = is_first
        if _has_no_state(entry):
            run.at.append(len(self._kept))
        self._kept.append((row, entry))
        if not entry.is_p2p:
            self._collectives[group] = entry.seq

    def _close_group(self, group: _Group, row: Mapping[str, object], closing: Collective) -> None:
        run = self._runs.get(group)
        if run is not None and run.is_p2p and run.seq == row.get("p2p_seq_id"):
            for at in run.at:
                self._give_state(at, closing)
        elif run is not None and run.at and not run.is_p2p and run.seq == closing.seq:
            self._fold(closing, run)
        elif closing.seq and (run is not None or self._is_whole):
            if closing.seq == self._collectives.get(group):
                return  # of sends and receives that are not in the record any more
            self._kept.append((row, closing))  # of collectives that this version does not write
            self._collectives[group] = closing.seq

    def _give_state(self, at: int, closing: Collective) -> None:
        kept = self._kept[at]
        if kept is not None:
            self._kept[at] = (kept[0], _with_state(kept[1], closing))

    def _fold(self, closing: Collective, run: _Run) -> None:
        members = [kept for at in run.at if (kept := self._kept[at]) is not None]
        for at in run.at:
            self._kept[at] = None
        if run.is_first and not self._is_whole:
            return  # some of its operations may be lost: nothing can be compared with it
        row, first = members[0]
        ops = Counter(one.op for _, one in members)
        folded = replace(
            first,
            op="coalesced " + ", ".join(f"{op} x {count}" for op, count in ops.items()),
            input_sizes=tuple(size for _, one in members for size in one.input_sizes),
            output_sizes=tuple(size for _, one in members for size in one.output_sizes),
            input_dtypes=tuple(dtype for _, one in members for dtype in one.input_dtypes),
            output_dtypes=tuple(dtype for _, one in members for dtype in one.output_dtypes),
        )
        self._kept[run.at[0]] = (row, _with_state(folded, closing))

    def close(self) -> list[Entry]:
        """What is left. Collectives of a group without its closing entry were not launched yet."""
        for run in self._runs.values():
            if len(run.at) > 1 and not run.is_p2p:
                for at in run.at:
                    self._kept[at] = None
        return [kept for kept in self._kept if kept is not None]


def _has_no_state(entry: Collective) -> bool:
    """As each operation of a group is written; gloo's entries never have one, and are no groups."""
    return entry.is_started is False and not entry.is_completed


def _with_state(entry: Collective, closing: Collective) -> Collective:
    return replace(
        entry,
        is_completed=closing.is_completed,
        is_started=closing.is_started,
        started_ns=closing.started_ns,
        completed_ns=closing.completed_ns,
    )
