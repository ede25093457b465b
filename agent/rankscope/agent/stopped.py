"""What to call a job that was stopped from outside: how it was doing then, without a false alarm. Pure.

A scheduler that preempts a job at night stops a healthy one nearly always, and the record has to answer
"was it hanging?". One that made progress a moment ago is ``Healthy``. Of one that was silent, but not for
long enough to be suspected, a rule's verdict is no more than a guess (a long step looks the same):
``Unknown``, with the guess in the summary.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from rankscope.diag.model import Diagnosis, Evidence, RankFinding

Standing = Literal["suspected", "silent", "training"]
"""Under suspicion; silent for longer than it usually is; in its ordinary rhythm."""


def stopped(found: Diagnosis, *, standing: Standing, why: str, silent: float, ever_moved: bool) -> Diagnosis:
    """Call a stopped job what it was.

    Args:
        found: what the rules say of the looks at it.
        standing: how it was doing by the watch.
        why: what stopped it (``SIGTERM``).
        silent: seconds since the last sign of progress; of life (output, CPU) where no progress is seen.
        ever_moved: whether any progress was seen since the start.

    Returns:
        Of a suspected job the rules' own verdict, else ``Healthy`` or ``Unknown``.
    """
    if standing == "suspected":
        return replace(found, summary=f"{found.summary}; then stopped by {why}")
    if standing == "training":
        return _training(found, why, silent, ever_moved=ever_moved)
    since = "without progress" if ever_moved else "after the last sign of life, without any progress yet"
    what = f"stopped by {why} {silent:.0f} s {since}"
    if found.verdict == "Healthy":
        return replace(found, summary=f"{what}; {found.summary}")
    return replace(
        found,
        verdict="Unknown",
        severity="info",
        confidence="low",
        culprits=(),
        nodes=(),
        summary=f"{what}, too early to call it a hang; if it was one: {found.summary}",
        evidence=(*found.evidence, Evidence("watch", f"no progress for {silent:.0f} s, no limit was passed")),
        ranks=tuple(_unblamed(rank) for rank in found.ranks),
    )


def _training(found: Diagnosis, why: str, silent: float, *, ever_moved: bool) -> Diagnosis:
    since = "the last progress" if ever_moved else "the last sign of life"
    said = "no longer silent than usual" if ever_moved else "no progress had been seen yet"
    return replace(
        found,
        verdict="Healthy",
        kind="none",
        severity="none",
        confidence="medium" if ever_moved else "low",
        culprits=(),
        nodes=(),
        location=None,
        rule="stopped",
        summary=f"stopped by {why} {silent:.1f} s after {since}: {said}",
        evidence=(Evidence("watch", f"{silent:.1f} s since {since}"),),
        ranks=tuple(_running(rank) for rank in found.ranks),
    )


def _running(rank: RankFinding) -> RankFinding:
    """A finding of a rank of a job that moves: whoever waits, waits for a moment."""
    state = rank.state if rank.state in ("exited", "unobserved") else "running"
    return replace(rank, role="bystander", rank_class=None, waits_for=(), state=state)


def _unblamed(rank: RankFinding) -> RankFinding:
    """A finding that blames nobody."""
    if rank.role != "culprit":
        return rank
    state = rank.state if rank.state in ("exited", "unobserved") else "suspected"
    return replace(rank, role="bystander", rank_class=None, state=state)
