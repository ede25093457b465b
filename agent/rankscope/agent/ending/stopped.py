"""What to call a job that was stopped from outside: how it was doing then, without a false alarm. Pure.

A scheduler that preempts a job at night stops a healthy one nearly always, and the record has to answer
"was it hanging?". One that made progress a moment ago is ``Healthy``, and so is one that was seen. Where
no rank was observed and no progress is known, nothing speaks for health: ``Unknown``. Of one that was silent,
but not for long enough to be suspected, a rule's verdict is no more than a guess (a long step looks the
same): ``Unknown``, with the guess in the summary.
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
    unsure = f"{what}, too early to call it a hang"
    return _as_guess(found, unsure, because=f"no progress for {silent:.0f} s, no limit was passed")


def left_behind(found: Diagnosis, *, why: str) -> Diagnosis:
    """Call what nobody has followed what one look shows: ranks that sleep between two steps look like a hang.

    Args:
        found: what the rules say of the look.
        why: nobody has followed it.

    Returns:
        The rules' own verdict where it says no hang, else ``Unknown``.
    """
    what = f"left behind, {why}"
    if found.verdict in ("Healthy", "Unknown", "Exited"):
        return replace(found, summary=f"{what}: {found.summary}")
    unsure = f"{what}, no telling whether it hangs"
    return _as_guess(found, unsure, because="one look, no progress was followed")


def _as_guess(found: Diagnosis, what: str, *, because: str) -> Diagnosis:
    """A verdict that nothing but a look speaks for, as the guess that it is: nobody is blamed.

    Args:
        found: what the rules say.
        what: what is known, for a person.
        because: why it is no more than a guess.
    """
    return replace(
        found,
        verdict="Unknown",
        severity="info",
        confidence="low",
        culprits=(),
        nodes=(),
        summary=f"{what}; if it was one: {found.summary}",
        evidence=(*found.evidence, Evidence("watch", because)),
        ranks=tuple(_unblamed(rank) for rank in found.ranks),
    )


def _training(found: Diagnosis, why: str, silent: float, *, ever_moved: bool) -> Diagnosis:
    since = "the last progress" if ever_moved else "the last sign of life"
    if not (ever_moved or found.observed):
        return _not_known(found, why, silent)
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


def _not_known(found: Diagnosis, why: str, silent: float) -> Diagnosis:
    """Of a job that nobody saw and that was not seen to move, as one that is still starting."""
    life = f"{silent:.1f} s after the last sign of life"
    return replace(
        found,
        verdict="Unknown",
        kind="none",
        severity="info",
        confidence="low",
        culprits=(),
        nodes=(),
        location=None,
        rule="stopped",
        summary=f"stopped by {why} {life}: no rank could be observed and no progress had been seen yet",
        evidence=(Evidence("watch", f"stopped {life}; no progress had been seen yet"),),
        ranks=tuple(_unblamed(rank) for rank in found.ranks),
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
