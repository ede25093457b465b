"""Rule about a place outside of all waits that all ranks share: a common cause, and no culprit (row 10).

Sources: DIAGNOSIS.md, "Naming the culprit", and "Noticing", decision 5. A place on the store is in
``start_up``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.blame import (
    Finding,
    activity_evidence,
    blame,
    pair_evidence,
    ranks_without_task,
    severity_of,
    silence,
    unseen_phrase,
)
from rankscope.diag.classify.comparison import site
from rankscope.diag.classify.kinds import Cause, library_kind
from rankscope.diag.classify.things import thing_evidence, thing_of, waits_for_a_build
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import NO_MINORITY, join, stand_phrase, stuck_phrase
from rankscope.diag.model import Confidence, Kind

# Who waits for work is never in these: a server between two requests stands in a poll, a queue or a sleep.
_NEVER_IDLE: Final[frozenset[Kind]] = frozenset({"checkpoint", "compile"})


def common_place(job: JobView) -> Finding | None:
    """Row 10. Nobody waits for another and all stand in the same place: a common cause, no minority.

    Not while the page shows a collective that some entered and others did not: then it is no common cause.
    """
    away = away_ranks(job)
    if not away or waiting_ranks(job) or job.entered_new or job.missing:
        return None
    levels = {view.activity.level for view in away}
    builds = _all_wait_for_a_build(job, away)
    polls = "ticking" in levels and builds
    if levels & {"busy"} or ("ticking" in levels and job.paired and not polls):
        return None
    gone = [view for view in job.ranks if view.gone]
    quiet = levels == {"quiet"}
    leaving = all(view.position is not None and view.position.label == "exit" for view in away)
    known = job.rhythm_known or ((quiet or builds) and _ends_by_itself(job, away, gone=gone, leaving=leaving))
    if len(ranks_without_task(away)) == len(away) and not gone:
        return _stands_still(job, away, "no rank has a task, as between two steps of who gives them")
    if job.paired and not known:
        return _stands_still(job, away, "no step or collective says whether something should have moved")
    if not job.paired and not gone and not builds:
        return _stands_still(job, away, "one look does not tell whether something should have moved")
    if job.latest.world_size == 1 or (gone and (leaving or len(away) == 1)):
        return blame(job, away, (), rule="10", at_most=_at_most(job, gone=gone))
    # Where they wait for child processes, those are what stands somewhere.
    causes = [job.cause(view) for view in away]
    one_path = builds or len({site(view)[1:] for view in away}) == 1
    if not one_path or len({cause.place for cause in causes}) != 1:
        return None
    if job.unseen:
        return _stands_still(job, away, "whether the others stand there too is not known")
    sure = quiet and job.rhythm_known and not _in_the_unknown(job, away[0])
    return _common_cause(job, away, causes[0], confidence="high" if sure else "low")


def _ends_by_itself(
    job: JobView, away: Sequence[RankView], *, gone: Sequence[RankView], leaving: bool
) -> bool:
    """Whether what all ranks are quiet in should end soon, though nobody has seen the job move.

    Library frames show them in a checkpoint or a compilation, or at the end of a program that the others have
    left with 0. A server between two requests is in neither.
    """
    if job.unseen:
        return False
    if gone:
        ends = [view.latest.exit for view in gone]
        return leaving and all(end is not None and end.code == 0 for end in ends)
    return all(library_kind(view.position, job.catalogue) in _NEVER_IDLE for view in away)


def _at_most(job: JobView, *, gone: Sequence[RankView]) -> Confidence:
    if not job.rhythm_known:
        return "low"
    return "medium" if gone else "high"


def _all_wait_for_a_build(job: JobView, away: Sequence[RankView]) -> bool:
    """Whether all ranks poll for the end of a build that none of them does: whoever builds stands elsewhere.

    A lock file that a killed build left behind looks like this, at every look. A loop of sleeps and looks
    shows other leaves from look to look, below one line of the user's.
    """
    if job.unseen or len(away) < job.latest.world_size:
        return False
    looks = [view.position for view in away] + [view.before for view in away if job.paired]
    places = {one.place if one is not None and waits_for_a_build(one) else "" for one in looks}
    return len(places) == 1 and "" not in places


def _in_the_unknown(job: JobView, view: RankView) -> bool:
    """Whether it stands in a library that the catalogue does not know: that may communicate, too."""
    position = view.position
    leaf = position.leaf if position is not None else None
    if position is None or leaf is None or position.label is not None:
        return False
    return not job.catalogue.is_user_code(leaf) and job.catalogue.label(leaf) is None


def _common_cause(job: JobView, away: Sequence[RankView], cause: Cause, *, confidence: Confidence) -> Finding:
    thing = thing_of(job, away[0], cause.kind)
    levels = {view.activity.level for view in away}
    return Finding(
        verdict="RankNonCommHang",
        kind=cause.kind,
        severity=severity_of(job, alive=any(view.activity.level == "ticking" for view in away)),
        confidence=confidence,
        rule="10",
        summary=join(
            stuck_phrase({view.rank: (cause.place, cause.kind) for view in away})
            + (f" ({thing})" if thing else ""),
            _how_long(silence(job, away)) if job.paired and levels == {"unknown"} else "",
            NO_MINORITY,
        ),
        location=cause.location,
        evidence=(
            *cause.evidence,
            *thing_evidence(away[0], thing),
            *activity_evidence(away[:4]),
            *pair_evidence(job),
        ),
    )


def _stands_still(job: JobView, away: Sequence[RankView], but: str) -> Finding:
    """All are quiet and nothing says that they should not be: a server waits for requests like this."""
    causes = {view.rank: job.cause(view) for view in away}
    one_place = len({cause.place for cause in causes.values()}) == 1
    first = causes[away[0].rank]
    seconds = silence(job, away)
    return Finding(
        verdict="Unknown",
        kind=first.kind if one_place else "none",
        severity="info",
        confidence="low",
        rule="10",
        summary=join(
            stand_phrase({rank: cause.place for rank, cause in causes.items()}),
            _how_long(seconds) if job.paired else "",
            but,
            unseen_phrase(job),
        ),
        location=first.location if one_place else None,
        evidence=(*first.evidence, *activity_evidence(away[:4]), *pair_evidence(job)),
    )


def _how_long(seconds: float) -> str:
    """How long the pair shows no movement, where its looks have a time."""
    if seconds <= 0:
        return "nothing moved between the looks (the time between them is not known)"
    return f"nothing moved in {seconds:.0f} s"
