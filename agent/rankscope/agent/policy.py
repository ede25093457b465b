"""What to do about a diagnosis. Pure: diagnosis, history and settings in, a decision out.

The smallest policy (FAULT_TOLERANCE.md, "Decisions"): a confirmed hang past the act-after limit restarts
the job while restarts are left; with none left the job fails and asks to be run again. The reason is a
sentence that a person can act on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.ranks import fold_ranks

EXIT_RUN_AGAIN: Final = 75
"""sysexits' EX_TEMPFAIL: a scheduler should run the job again."""

OnHang = Literal["auto", "log", "notify", "hold", "restart"]


@dataclass(frozen=True, slots=True)
class History:
    """What the job has been through.

    Attributes:
        restarts_left: restarts that are still allowed.
        restarts_allowed: restarts allowed in all (``--max-restarts``).
        interval_given: whether the user named a ``--job-hang-interval``.
        progress_seen: whether any rank ever made a step or completed a collective in this cycle.
    """

    restarts_left: int
    restarts_allowed: int
    interval_given: bool = False
    progress_seen: bool = True


def decide_on_hang(
    diagnosis: Diagnosis, history: History, *, silent_seconds: float, on_hang: OnHang, time: str
) -> Decision:
    """Decide about a hang that has outlasted the act-after limit.

    Args:
        diagnosis: what is known of it.
        history: restarts left and what was asked for.
        silent_seconds: seconds without progress.
        on_hang: the user's choice; ``auto`` restarts where restarts are allowed, else only notifies
            unless an interval was given.
        time: when this is decided, ISO 8601.
    """
    what = f"no progress for {silent_seconds:.0f} s: {diagnosis.summary}"

    def decision(action: Literal["log", "notify", "hold", "restart", "fail"], reason: str) -> Decision:
        code = EXIT_RUN_AGAIN if action == "fail" else None
        return Decision(
            action=action,
            reason=reason,
            time=time,
            incident=diagnosis.incident,
            culprits=diagnosis.culprits or suspects,
            exit_code=code,
        )

    suspects = tuple(rank.rank for rank in diagnosis.ranks if rank.state == "suspected")
    if on_hang in ("log", "notify", "hold"):
        return decision(on_hang, f"{what}; --on-hang {on_hang} leaves the job as it is")
    blind = diagnosis.verdict == "Unknown" or not history.interval_given
    if not history.progress_seen and not diagnosis.culprits and blind:
        # Nothing ever said that this job trains: it may be a server that waits for requests.
        return decision("notify", f"{what}; no step and no collective was ever seen, so nothing is stopped")
    if history.restarts_left > 0:
        used = history.restarts_allowed - history.restarts_left + 1
        return decision("restart", f"{what}; restart {used} of {history.restarts_allowed}")
    if on_hang == "auto" and history.restarts_allowed == 0 and not history.interval_given:
        return decision(
            "notify", f"{what}; no restarts are allowed (--max-restarts), so the job is left as it is"
        )
    used_up = (
        f"all {history.restarts_allowed} restarts are used up"
        if history.restarts_allowed
        else "no restart is allowed"
    )
    return decision("fail", f"{what}; {used_up}, run the job again")


def decide_on_failure(
    diagnosis: Diagnosis, *, restarts_left: int, restarts_allowed: int, time: str
) -> Decision:
    """What torch's agent is about to do about failed workers, in words for the record."""
    if restarts_left > 0:
        used = restarts_allowed - restarts_left + 1
        action: Literal["restart", "fail"] = "restart"
        reason = f"{diagnosis.summary}; restart {used} of {restarts_allowed}"
    else:
        action = "fail"
        reason = f"{diagnosis.summary}; no restart is left of {restarts_allowed}"
    return Decision(
        action=action,
        reason=reason,
        time=time,
        incident=diagnosis.incident,
        culprits=diagnosis.culprits,
        exit_code=1 if action == "fail" else None,
    )


def decide_on_timer(
    what: str, *, signal_name: str, is_rank: bool, history: History, on_hang: OnHang, time: str, incident: str
) -> tuple[Decision, bool]:
    """Decide about a worker's own timer that has expired, with the evidence stored.

    Args:
        what: which timer of whom, for a person.
        signal_name: the signal that it asked for.
        is_rank: whether the process that set it is a rank, and no child of one.
        history: restarts left and allowed.
        on_hang: ``log``, ``notify`` and ``hold`` leave the process as it is.
        time: when this is decided, ISO 8601.
        incident: where the evidence lies.

    Returns:
        The decision, and whether the signal is sent.
    """
    send = True
    action: Literal["log", "notify", "hold", "restart", "fail"] = "notify"
    then = "it gets {}, as it asked"
    if on_hang in ("log", "notify", "hold"):
        send, action = False, on_hang
        then = f"--on-hang {on_hang} leaves it as it is: {{}} is not sent"
    elif is_rank:
        action = "restart" if history.restarts_left > 0 else "fail"
        then += f"; {history.restarts_left} of {history.restarts_allowed} restarts are left"
    reason = f"{what} has expired; {then.format(signal_name)}"
    return Decision(action=action, reason=reason, time=time, incident=incident or None), send


def decide_on_stuck_kernel(diagnosis: Diagnosis | None, *, time: str) -> Decision:
    """A worker is in uninterruptible sleep: it cannot be ended, and a new one would meet the same device.

    torch refuses a restart on that node as well (``TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT``).
    """
    what = diagnosis.summary if diagnosis is not None else "a worker is in uninterruptible sleep"
    return Decision(
        action="fail",
        reason=f"{what}; a worker blocked in the kernel cannot be restarted on this node, run the job again",
        time=time,
        incident=diagnosis.incident if diagnosis is not None else None,
        culprits=diagnosis.culprits if diagnosis is not None else (),
        exit_code=EXIT_RUN_AGAIN,
    )


def decide_on_left_workers(ranks: tuple[int, ...], *, time: str) -> Decision:
    """A worker did not end, not even by SIGKILL: a new one would meet the same device."""
    what = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {fold_ranks(ranks)}"
    return Decision(
        action="fail",
        reason=f"{what} could not be ended, not even by SIGKILL; no restart on this node, run the job again",
        time=time,
        culprits=ranks,
        exit_code=EXIT_RUN_AGAIN,
    )
