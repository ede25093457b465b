"""The rows of ``collectives()``: every operation in the flight records of an incident, and how late it came.

Pure. Who is to blame for lateness is ``classify.lateness``'s business: here each call stands for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rankscope.diag.collective_steps import step_at
from rankscope.diag.tables.declare import Rows
from rankscope.diag.tables.looks import RawCall, RecordedRank, Stacks, StandingRank, Texts
from rankscope.diag.tables.of_looks import at_ns

_SECOND: Final = 1_000_000_000
_Call = tuple[str, str, int]
"""Node, group and number."""


Newest = Mapping[int, tuple[str, RecordedRank]]
"""Of each rank the newest look that has a record of it, and the rank in it, in order of the ranks."""


def collective_rows(
    incident: str, newest: Newest, before: Mapping[int, StandingRank], stacks: Stacks, texts: Texts
) -> Rows:
    """The rows of one incident.

    Args:
        incident: its id.
        newest: the records.
        before: the ranks in the look before the newest, none where there was one look only.
        stacks: known ones.
        texts: known ones.
    """
    first = _first_calls(rank for _, rank in newest.values())
    for name, rank in newest.values():
        head = (incident, name, at_ns(rank.time), rank.rank, rank.node)
        steps = _Steps(before.get(rank.rank), rank)
        for call in rank.record.entries if rank.record is not None else ():
            stack = stacks.shown(call.frames)
            yield (
                *head,
                call.group,
                call.seq,
                call.op,
                call.is_p2p,
                call.is_completed,
                call.is_started,
                call.peer,
                call.created_ns or None,
                _lateness(rank.node, call, first),
                steps.of(call),
                call.started_ns or None,
                call.completed_ns or None,
                texts.shown(call.input_sizes),
                texts.shown(call.input_dtypes),
                stack[0] if stack else None,
            )


def _first_calls(ranks: Iterable[RecordedRank]) -> dict[_Call, tuple[int, int]]:
    """When the first rank of a node made each call, and how many of its ranks did."""
    found: dict[_Call, tuple[int, int]] = {}
    for rank in ranks:
        for call in rank.record.entries if rank.record is not None else ():
            if call.created_ns > 0 and not call.is_p2p:
                key = rank.node, call.group, call.seq
                first, count = found.get(key, (call.created_ns, 0))
                found[key] = min(first, call.created_ns), count + 1
    return found


def _lateness(node: str, call: RawCall, first: Mapping[_Call, tuple[int, int]]) -> float | None:
    if call.is_p2p or call.created_ns <= 0:
        return None
    earliest, count = first[node, call.group, call.seq]
    return (call.created_ns - earliest) / _SECOND if count > 1 else None


class _Steps:
    """The steps that a rank's calls belong to, by its pages and records at two looks."""

    def __init__(self, before: StandingRank | None, now: RecordedRank) -> None:
        self._steps: tuple[int, int] | None = None
        self._numbers: dict[str, tuple[int, int]] = {}
        if before is None or before.progress is None or now.progress is None:
            return
        if before.record is None or now.record is None:
            return
        self._steps = before.progress.step, now.progress.step
        earlier = {group.name: group.enqueued for group in before.record.groups}
        self._numbers = {
            group.name: (earlier[group.name], group.enqueued)
            for group in now.record.groups
            if group.name in earlier
        }

    def of(self, call: RawCall) -> int | None:
        """The step of one call."""
        numbers = self._numbers.get(call.group)
        if self._steps is None or numbers is None or call.is_p2p:
            return None
        return step_at(call.seq, self._steps, numbers)
