"""What to do about a hang that has outlasted the act-after limit. Pure: same input, same decision.

FAULT_TOLERANCE.md, "Two limits" and "Decisions". A verdict that is no hang stops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rankscope.agent.policy import gate
from rankscope.agent.policy.isolation import (
    blocked_ranks,
    leaving,
    may_leave,
    must_be_spared,
    node_to_blame,
)
from rankscope.agent.policy.situation import History, Rules
from rankscope.diag.model import SLOW, Action, Decision, Diagnosis
from rankscope.diag.ranks import fold_ranks

_AFTERWARDS: Final = {
    "log": "it is kept in the records only",
    "notify": "end it by hand if it does not come back",
    "hold": "look at it with a debugger, then end it by hand",
}
"""What there is to do where ``--on-hang`` leaves the job as it is."""


def decide_on_hang(
    diagnosis: Diagnosis, history: History, rules: Rules, *, silent_seconds: float, time: str
) -> Decision:
    """Decide about a hang that has outlasted the act-after limit.

    Args:
        diagnosis: what is known of it.
        history: what the job has been through.
        rules: what the user allows.
        silent_seconds: seconds without progress.
        time: when this is decided, ISO 8601.
    """
    what = f"no progress for {silent_seconds:.0f} s: {diagnosis.summary}"
    return _decide(_Hang(diagnosis, what, time), history, rules)


def decide_on_exit_hang(
    diagnosis: Diagnosis, history: History, rules: Rules, *, silent_seconds: float, time: str
) -> Decision:
    """Decide about ranks that linger after others have ended (``--job-exit-hang-interval``).

    Args:
        diagnosis: what is known of it; who has ended is read from its ranks.
        history: what the job has been through; ``interval_given`` is of the exit interval.
        rules: what the user allows.
        silent_seconds: seconds without progress.
        time: when this is decided, ISO 8601.
    """
    ended = [one.rank for one in diagnosis.ranks if one.state == "exited"]
    who = f"{'rank' if len(ended) == 1 else 'ranks'} {fold_ranks(ended)}" if ended else "some ranks"
    have = "has" if len(ended) == 1 else "have"
    what = f"{who} {have} ended, the rest lingers for {silent_seconds:.0f} s: {diagnosis.summary}"
    return _decide(_Hang(diagnosis, what, time), history, rules)


@dataclass(frozen=True, slots=True)
class _Hang:
    """One hang; ``what`` has happened is a phrase."""

    diagnosis: Diagnosis
    what: str
    time: str

    def decided(self, action: Action, then: str, exit_code: int | None = None) -> Decision:
        suspects = tuple(rank.rank for rank in self.diagnosis.ranks if rank.state == "suspected")
        return Decision(
            action=action,
            reason=f"{self.what}; {then}",
            time=self.time,
            incident=self.diagnosis.incident,
            culprits=self.diagnosis.culprits or suspects,
            exit_code=exit_code,
        )

    def run_again(self, why: str) -> Decision:
        return self.decided("fail", f"{why}; {gate.RUN_AGAIN}", gate.EXIT_RUN_AGAIN)


def _decide(hang: _Hang, history: History, rules: Rules) -> Decision:
    return (
        _left_alone(hang, history, rules) or _refused(hang, history, rules) or _acted_on(hang, history, rules)
    )


def _left_alone(hang: _Hang, history: History, rules: Rules) -> Decision | None:
    """What lets the workers be."""
    diagnosis = hang.diagnosis
    if rules.execution_mode == "Async":
        return hang.decided("log", "Async workers are independent, so nothing is done about it")
    if diagnosis.verdict == "Healthy":
        return hang.decided("log", "this is no hang, so the job is left as it is")
    if diagnosis.verdict in SLOW:
        return hang.decided("notify", "it is slow and does not hang, so the job is left as it is")
    if rules.on_hang in ("log", "notify", "hold"):
        return _as_asked(hang, rules.on_hang)
    doubtful = diagnosis.verdict == "Unknown" or not history.interval_given
    if not history.progress_seen and not diagnosis.culprits and doubtful:
        # Nothing ever said that this job trains: it may be a server that waits for requests.
        then = "no step and no collective was ever seen, so nothing is stopped"
        return hang.decided("notify", f"{then}; end it by hand if it should train")
    return _not_asked_for(hang, history, rules)


def _as_asked(hang: _Hang, on_hang: Literal["log", "notify", "hold"]) -> Decision:
    return hang.decided(on_hang, f"--on-hang {on_hang} leaves the job as it is; {_AFTERWARDS[on_hang]}")


def _not_asked_for(hang: _Hang, history: History, rules: Rules) -> Decision | None:
    """No restart, and nobody asked for an end: torchrun would leave the job alone as well."""
    if rules.on_hang == "restart" or history.interval_given:
        return None
    refusal = gate.never(rules)
    if refusal is None and gate.may_restart(rules, history):
        return None
    why = refusal.why if refusal is not None else gate.why_none(rules, history)
    return hang.decided("notify", f"{why}, so the job is left as it is; {_AFTERWARDS['notify']}")


def _refused(hang: _Hang, history: History, rules: Rules) -> Decision | None:
    refusal = gate.never(rules) or gate.no_progress(history, rules)
    return hang.decided("fail", refusal.reason, gate.EXIT_REFUSED) if refusal is not None else None


def _acted_on(hang: _Hang, history: History, rules: Rules) -> Decision:
    """The workers are stopped, and what then."""
    if why := gate.why_none(rules, history):
        return hang.run_again(why)
    which = gate.which_restart(history)
    node = node_to_blame(hang.diagnosis)
    if node and may_leave(rules):
        then = f"{leaving(node, rules)}, {which}; have that node checked before it comes back"
        return hang.decided("isolate", then, gate.EXIT_RUN_AGAIN)
    if blocked := blocked_ranks(hang.diagnosis):
        where = f"on {node}" if node else f"where rank {blocked[0]} is"
        return hang.run_again(f"a worker blocked in the kernel cannot be restarted {where}")
    if node and must_be_spared(hang.diagnosis, rules):
        return hang.run_again(f"{node} is to blame and the job has no node to spare (--nnodes)")
    return hang.decided("restart", f"all workers are restarted, {which}")
