"""Rules about ranks that exist and cannot run: stopped by a signal, or blocked in the kernel (row 2).

Sources: DIAGNOSIS.md, "Naming the culprit" and decisions 2 and 3. They look at process states and only name
what waits for those ranks.
"""

from __future__ import annotations

from rankscope.diag.classify.activity import FROZEN_STATES, SILENT
from rankscope.diag.classify.blame import (
    Finding,
    activity_evidence,
    calls,
    lower,
    pair_evidence,
    victim_evidence,
)
from rankscope.diag.classify.view import JobView, RankView, waiting_ranks
from rankscope.diag.classify.wording import join, wait_phrase
from rankscope.diag.model import Confidence, Evidence


def all_stopped(job: JobView) -> Finding | None:
    """Decision 2: every rank stopped by a signal is somebody's wish, nobody's fault."""
    states = [view.frozen for view in job.ranks]
    if not states or set(states) - {"T", "t"} or len(states) < job.latest.world_size:
        return None
    return Finding(
        "RankNonCommHang", "frozen", "info", "high" if job.paired else "medium", "2",
        "the job is stopped by a signal: all ranks are in state T",
        evidence=(*activity_evidence(job.ranks), *pair_evidence(job)),
    )  # fmt: skip


def frozen_ranks(job: JobView) -> Finding | None:
    """Row 2. A rank that cannot run (T, t, D in both snapshots) is the culprit, whatever its stack shows.

    So is one whose server accepts and stays silent at both looks: it needs nothing but a running process.
    """
    frozen = [view for view in job.ranks if view.frozen]
    if not frozen:
        return None
    waiting = waiting_ranks(job)
    causes = {view.rank: job.cause(view) for view in frozen}
    culprits = tuple(causes)
    what = {
        view.rank: FROZEN_STATES.get(view.frozen or "", "a process whose main thread has ended")
        for view in frozen
    }
    places = [
        f"rank {rank} is {what[rank]}" + (f" in {cause.place}" if cause.location else "")
        for rank, cause in causes.items()
    ]
    evidence = [_state(view) for view in frozen]
    if len(frozen) > 1 and len(frozen) == job.latest.world_size:
        culprits = ()
    confidence: Confidence = "high" if job.paired else "medium"
    if not job.rhythm_known and all(view.frozen == "D" for view in frozen):
        # A large read before the first step is blocked in the kernel at most looks, and ends by itself.
        confidence = lower(confidence, to="medium")
    return Finding(
        verdict="RankNonCommHang",
        kind="frozen" if culprits else "storage",
        severity="warning",
        confidence=confidence,
        rule="2",
        summary=join(
            *places[:4],
            f"{len(places) - 4} more likewise" if len(places) > 4 else "",  # noqa: PLR2004 - a line's worth
            "no minority: all ranks" if not culprits else "",
            wait_phrase(calls(waiting), for_whom=culprits),
        ),
        culprits=culprits,
        victims=dict.fromkeys((view.rank for view in waiting), culprits),
        location=next((cause.location for cause in causes.values() if cause.location), None),
        evidence=(
            *evidence,
            *(fact for cause in causes.values() for fact in cause.evidence),
            *victim_evidence(waiting),
            *pair_evidence(job),
        ),
    )


def _state(view: RankView) -> Evidence:
    """Where the state was read: ``/proc``, torch's server, or the words of a tool that failed on it."""
    facts = view.latest.facts
    if view.frozen == SILENT:
        return Evidence("server", FROZEN_STATES[SILENT], view.rank)
    if facts is None:
        return Evidence("tool", view.latest.reason or "", view.rank)
    wchan = f", in the kernel's {facts.wchan}" if facts.wchan and facts.wchan != "0" else ""
    text = f"state {view.frozen} ({FROZEN_STATES.get(view.frozen or '', 'ended')}){wchan}"
    return Evidence("/proc", text, view.rank)
