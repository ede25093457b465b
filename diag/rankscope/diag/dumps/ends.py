"""What log lines say of the ranks: how they ended, and which collective they were in.

The first failure is the root. What torchrun does to the survivors (SIGTERM) and what peers raise because a
connection closed are consequences; which they are is for the rules to say, here only the order in time is
kept. This module is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from rankscope.diag.model import Collective, ExitFacts, FlightRecord, Frame, RecordedGroup
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.read import LogFact
from rankscope.diag.read.log_tracebacks import is_interruption
from rankscope.diag.read.vain_waits import MISMATCH, WATCHDOG

_SIGTERM: Final = -15
_STOPPED: Final = (_SIGTERM, -2)
"""Signals that end a job from outside, or its survivors."""
_ABORTED: Final = "Fatal Python error: Aborted"
_FAILED: Final = 1
"""Python's exit status after an uncaught exception."""
_SOME_GROUP: Final = "?"
_BEFORE: Final = 0.001  # seconds: torchrun's times are whole seconds, its root is the first of them


def exits(facts: Sequence[LogFact]) -> dict[int, ExitFacts]:
    """How ranks ended, by rank: torchrun's word first, then their own last exception, then a signal sent."""
    latest = max((fact.time for fact in facts if fact.time is not None), default=None)
    told: dict[int, list[LogFact]] = defaultdict(list)
    made_to = _made_to_abort(facts)
    for fact in facts:
        if fact.rank is not None and fact.kind in _WORDS and not _is_abort(fact, made_to):
            told[fact.rank].append(fact)
    ends = {rank: _end(lines, latest) for rank, lines in told.items()}
    roots = {fact.rank for fact in facts if fact.kind == "root_failure" and fact.rank is not None}
    return _roots_first(ends, roots)


_WORDS: Final = {
    "root_failure": 0,
    "failure": 1,
    "task_ended": 1,
    "crashed": 2,
    "raised": 3,
    "left": 4,
    "signalled": 5,
}


def crashed(facts: Sequence[LogFact]) -> set[int]:
    """Ranks whose stacks were written by their own end, so that the end counts and not the stack."""
    made_to = _made_to_abort(facts)
    return {
        fact.rank
        for fact in facts
        if fact.rank is not None and fact.kind == "crashed" and not _is_abort(fact, made_to)
    }


def _made_to_abort(facts: Sequence[LogFact]) -> set[int | None]:
    """Ranks whose abort is what became of a wait: by their watchdog, or, where several abort, by another."""
    aborted = {fact.rank for fact in facts if fact.kind == "crashed" and fact.text == _ABORTED}
    by_watchdog = {fact.rank for fact in facts if fact.kind in WATCHDOG}
    return aborted if len(aborted) > 1 else aborted & by_watchdog


def _is_abort(fact: LogFact, ranks: Collection[int | None]) -> bool:
    return fact.kind == "crashed" and fact.text == _ABORTED and fact.rank in ranks


def _end(lines: Sequence[LogFact], latest: float | None) -> ExitFacts:
    ordered = sorted(lines, key=lambda fact: _WORDS[fact.kind])
    raised = [fact for fact in lines if fact.kind == "raised"]
    if ordered[0].kind != "signalled":  # a signal may be sent to what has failed already
        ordered = [fact for fact in ordered if fact.kind != "signalled"]
    said = [fact.exit for fact in ordered if fact.exit is not None]
    code = next((one.code for one in said if one.code is not None), None)
    if code is None and ordered[0].kind == "signalled":
        code = _SIGTERM
    message = next((one.message for one in said if one.message), "")
    if raised and (not message or code in (_FAILED, None)):
        message = raised[-1].text
    time = next((fact.time for fact in ordered if fact.time is not None), None)
    return ExitFacts(
        code=code,
        message=message,
        seconds_ago=None if time is None or latest is None else latest - time,
        frame=next((one.frame for one in said if one.frame is not None), None),
    )


def _roots_first(ends: dict[int, ExitFacts], roots: Collection[int]) -> dict[int, ExitFacts]:
    """The root's end before all others', whatever whole seconds they share."""
    ages = [end.seconds_ago for end in ends.values() if end.seconds_ago is not None]
    if not roots or not ages:
        return ends
    oldest = max(ages) + _BEFORE
    return {
        rank: msgspec.structs.replace(end, seconds_ago=oldest) if rank in roots else end
        for rank, end in ends.items()
    }


def ends_that_count(
    ends: Mapping[int, ExitFacts], seen: Collection[int]
) -> tuple[dict[int, ExitFacts], str | None]:
    """The ends that are judged, and a line about those that are not, because there are stacks.

    Ranks whose stacks were taken were alive then. When all that ended had stacks, these are to be judged:
    mostly the job was stopped after somebody had looked at it. A survivor's SIGTERM never says more than its
    stack.

    Args:
        ends: all ends, by rank.
        seen: ranks with stacks.
    """
    later = set(ends) & set(seen)
    if not (later == set(ends) and len(seen) > 1):
        later = {
            rank for rank in later if ends[rank].code in (*_STOPPED, None) or _is_interrupted(ends[rank])
        }
    if not later:
        return dict(ends), None
    count = {rank: end for rank, end in ends.items() if rank not in later}
    return count, f"the log tells that {_told(ends, later)}: judged by the stacks that there are of them"


def _is_interrupted(end: ExitFacts) -> bool:
    return is_interruption(end.message)


def _told(ends: Mapping[int, ExitFacts], ranks: Collection[int]) -> str:
    """What logs say of ranks that have stacks; when that was, against the stacks, they do not."""
    words: dict[str, set[int]] = defaultdict(set)
    for rank in sorted(ranks):
        code = ends[rank].code
        if code in _STOPPED:
            words["got SIGTERM" if code == _SIGTERM else "got SIGINT"].add(rank)
        else:
            words["raised an exception" if code is None and ends[rank].message else "ended"].add(rank)
    return ", ".join(f"rank{'s' * (len(of) > 1)} {fold_ranks(of)} {what}" for what, of in words.items())


def without_waits(
    ends: Mapping[int, ExitFacts], waited: Collection[int]
) -> tuple[dict[int, ExitFacts], str | None]:
    """The ends that may be a cause, and a line about those that are only the end of a wait in vain.

    What torchrun then does to the others (SIGTERM) is none either, where nobody else ended by itself.

    Args:
        ends: all ends, by rank.
        waited: ranks that ended because what they waited for did not come (``waited_in_vain``).
    """
    vain = set(ends).intersection(waited)
    if not vain:
        return dict(ends), None
    others = {rank: end for rank, end in ends.items() if rank not in vain}
    if all(end.code == _SIGTERM or (end.code is None and not end.message) for end in others.values()):
        others = {}
    whose = f"rank{'s' * (len(vain) > 1)} {fold_ranks(vain)}"
    return others, f"{whose} ended of a wait in vain, a consequence: judged by what was waited for"


def records_of(facts: Sequence[LogFact]) -> dict[int, FlightRecord]:
    """What watchdog and mismatch lines say of the ranks' collectives, as a flight record each."""
    found: dict[int, list[FlightRecord]] = defaultdict(list)
    raised = _raised_at(facts)
    for fact in facts:
        if fact.record is not None and fact.rank is not None:
            record = _in_a_group(fact, fact.record)
            found[fact.rank].append(_called_at(record, raised.get(fact.rank)))
        if fact.other is not None:
            rank, record = fact.other
            found[rank].append(_in_a_group(fact, record))
    return {rank: _joined(records) for rank, records in found.items()}


def _raised_at(facts: Sequence[LogFact]) -> dict[int, Frame]:
    """Where ranks made the call that debug mode raised in."""
    return {
        fact.rank: fact.exit.frame
        for fact in facts
        if fact.kind == "raised" and fact.rank is not None and MISMATCH in fact.text
        if fact.exit is not None and fact.exit.frame is not None
    }


def _called_at(record: FlightRecord, frame: Frame | None) -> FlightRecord:
    if frame is None:
        return record
    entries = tuple(msgspec.structs.replace(one, frames=one.frames or (frame,)) for one in record.entries)
    return msgspec.structs.replace(record, entries=entries)


def _in_a_group(fact: LogFact, record: FlightRecord) -> FlightRecord:
    """Debug mode's words name no group, and speak of two ranks in one: its numbers are compared there."""
    if fact.kind != "mismatch":
        return record
    entries = tuple(
        msgspec.structs.replace(entry, group=entry.group or _SOME_GROUP) for entry in record.entries
    )
    return msgspec.structs.replace(record, entries=entries)


def completed(record: FlightRecord | None, lines: FlightRecord | None) -> FlightRecord | None:
    """A dump's record with what log lines add: groups that it does not name."""
    if record is None or lines is None:
        return record if record is not None else lines
    known = {group.name for group in record.groups}
    more = tuple(group for group in lines.groups if group.name not in known)
    return msgspec.structs.replace(record, groups=(*record.groups, *more)) if more else record


def _joined(records: Sequence[FlightRecord]) -> FlightRecord:
    """Lines about one rank together: of one group the last word counts, no operation is listed twice."""
    groups: dict[str, RecordedGroup] = {}
    entries: dict[tuple[str, int, bool], Collective] = {}
    for record in records:
        groups.update(
            (group.name, group)
            for group in record.groups
            if group.name not in groups or max(group.enqueued, group.completed) >= 0
        )
        for one in record.entries:
            key = one.group, one.seq, one.is_p2p
            before = entries.get(key)
            frames = one.frames or (before.frames if before is not None else ())
            entries[key] = msgspec.structs.replace(one, frames=frames)
    return FlightRecord(
        groups=tuple(groups.values()),
        entries=tuple(sorted(entries.values(), key=lambda one: one.seq)),
        rank=records[-1].rank,
    )
