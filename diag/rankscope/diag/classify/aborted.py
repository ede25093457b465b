"""Ranks that were aborted because of a hang that their flight records still show.

NCCL's watchdog writes the records when time has run out and then ends the process with SIGABRT; torchrun ends
the rest with SIGTERM. The exits are what came of the hang: the records say whose fault it was. A rank that
failed by itself wrote no record of the others' waits, for it was gone before. It only asks the other rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as structs_replace

from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.looking import look
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.classify.wording import end_phrase, join, name_ranks, verb
from rankscope.diag.model import Evidence, JobSnapshot

_SIGABRT: Final = -6
_SIGTERM: Final = -15  # from a launcher, to those that were left


def hang_before_exits(job: JobView, rules: tuple[Callable[[JobView], Finding | None], ...]) -> Finding | None:
    """What the rules say of the records, where all ranks that failed were aborted after they wrote theirs.

    Args:
        job: the job.
        rules: those that judge records.
    """
    ended = [view for view in job.ranks if view.gone]
    if any(not _was_aborted(view) for view in ended):
        return None
    if not any(view.latest.exit is not None and view.latest.exit.code == _SIGABRT for view in ended):
        return None
    if any(view.seen or view.latest.progress is not None for view in job.ranks):
        return None  # live: what the records show may be older than what ended the ranks
    before = look(_without_exits(job.latest), None, catalogue=job.catalogue, source_line=job.source_line)
    found = next((found for rule in rules if (found := rule(before)) is not None), None)
    if found is None or not found.verdict.endswith("Hang"):
        return None
    ranks = [view.rank for view in ended]
    ends = [Evidence("exit", end_phrase(view.latest.exit), view.rank) for view in ended]
    after = f"{name_ranks(ranks)} {verb(ranks, 'was', 'were')} ended because of it"
    return replace(found, summary=join(found.summary, after), evidence=(*found.evidence, *ends))


def _was_aborted(view: RankView) -> bool:
    """Whether it was ended by SIGABRT or SIGTERM, and left the record that a watchdog dumps before."""
    end, record = view.latest.exit, view.latest.record
    return (
        end is not None and end.code in (_SIGABRT, _SIGTERM) and record is not None and bool(record.version)
    )


def _without_exits(snapshot: JobSnapshot) -> JobSnapshot:
    ranks = tuple(structs_replace(rank, exit=None) for rank in snapshot.ranks)
    return structs_replace(snapshot, ranks=ranks)
