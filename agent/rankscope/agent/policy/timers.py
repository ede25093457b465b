"""What to do about a worker's own timer that has expired, with the evidence stored. Pure."""

from __future__ import annotations

from rankscope.agent.policy import gate
from rankscope.agent.policy.situation import History, Rules
from rankscope.diag.model import Action, Decision


def decide_on_timer(
    what: str,
    *,
    signal_name: str,
    is_rank: bool,
    history: History,
    rules: Rules,
    time: str,
    incident: str,
) -> tuple[Decision, bool]:
    """Decide about an expired timer: whether its signal is sent, and what will follow from that.

    What follows is decided once more when the worker has ended (``decide_on_failure``).

    Args:
        what: which timer of whom, for a person.
        signal_name: the signal that it asked for.
        is_rank: whether the process that set it is a rank, and no child of one.
        history: what the job has been through.
        rules: what the user allows; ``log``, ``notify`` and ``hold`` leave the process as it is.
        time: when this is decided, ISO 8601.
        incident: where the evidence lies.

    Returns:
        The decision, and whether the signal is sent.
    """
    action: Action
    code: int | None = None
    if rules.on_hang in ("log", "notify", "hold"):
        send, action = False, rules.on_hang
        then = f"--on-hang {rules.on_hang} leaves it as it is: {signal_name} is not sent"
    else:
        send = True
        action, after, code = _after_the_signal(history, rules) if is_rank else ("notify", "", None)
        then = f"it gets {signal_name}, as it asked{after}"
    decision = Decision(
        action=action,
        reason=f"{what} has expired; {then}",
        time=time,
        incident=incident or None,
        exit_code=code,
    )
    return decision, send


def _after_the_signal(history: History, rules: Rules) -> tuple[Action, str, int | None]:
    """What follows when the rank ends of it."""
    refusal = gate.never(rules) or (
        gate.no_progress(history, rules) if rules.execution_mode == "Sync" else None
    )
    if refusal is not None:
        return "fail", f"; {refusal.reason}", gate.EXIT_REFUSED
    if why := gate.why_none(rules, history):
        return "fail", f"; {why}, so the job fails if it ends of that", gate.EXIT_FAILED
    if rules.fault_tolerant_policy == "ExitCodeAndErrorMsg" or rules.execution_mode == "Async":
        return "notify", "; how it ends of that decides what is done", None
    left = history.restarts_left
    return "restart", f"; {left} of {history.restarts_allowed} restarts are left", None
