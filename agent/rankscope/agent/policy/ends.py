"""Ends without much of a choice: a node or an agent cannot go on, the job should be run elsewhere. Pure."""

from __future__ import annotations

import msgspec

from rankscope.agent.policy import gate
from rankscope.agent.policy.isolation import leaving, may_leave
from rankscope.agent.policy.situation import History, Rules
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.ranks import fold_ranks


def decide_on_stuck_kernel(
    diagnosis: Diagnosis | None, *, time: str, history: History, rules: Rules
) -> Decision:
    """A worker is in uninterruptible sleep: it cannot be ended, and a new one would meet the same device.

    torch refuses a restart on that node as well (``TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT``).

    Args:
        diagnosis: what is known of it, ``None`` when nobody could look.
        time: when this is decided, ISO 8601.
        history: what the job has been through.
        rules: what the user allows; this node may leave a job that goes on without it.
    """
    what = diagnosis.summary if diagnosis is not None else "a worker is in uninterruptible sleep"
    decision = _off_this_node(
        f"{what}; a worker blocked in the kernel cannot be restarted on this node", history, rules, time=time
    )
    if diagnosis is None:
        return decision
    return msgspec.structs.replace(decision, culprits=diagnosis.culprits, incident=diagnosis.incident)


def decide_on_left_workers(ranks: tuple[int, ...], *, time: str, history: History, rules: Rules) -> Decision:
    """Workers did not end, not even by SIGKILL: new ones would meet the same device.

    Args:
        ranks: those workers.
        time: when this is decided, ISO 8601.
        history: what the job has been through.
        rules: what the user allows; this node may leave a job that goes on without it.
    """
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {fold_ranks(ranks)}"
    what = f"{who} could not be ended, not even by SIGKILL; no restart on this node"
    return msgspec.structs.replace(_off_this_node(what, history, rules, time=time), culprits=ranks)


def decide_on_unknown_state(*, reason: str, time: str) -> Decision:
    """Torch has lost track of its workers (``WorkerState.UNKNOWN``), which is never recovered.

    Args:
        reason: what went wrong, a phrase.
        time: when this is decided, ISO 8601.
    """
    return _run_again(f"the state of the workers is not known ({reason}), so this agent ends", time=time)


def decide_on_restart_timeout(*, seconds: float, limit: float, time: str) -> Decision:
    """A restart takes too long.

    Args:
        seconds: seconds since it began.
        limit: seconds it may take (``--job-restart-timeout``).
        time: when this is decided, ISO 8601.
    """
    what = f"the restart has taken {seconds:.0f} s and no worker runs (--job-restart-timeout {limit:g})"
    return _run_again(what, time=time)


def decide_on_stuck_agent(*, action: str, seconds: float, time: str) -> Decision:
    """What was decided cannot be carried out: the agent's main thread waits in torch, for the store.

    Args:
        action: what was decided.
        seconds: seconds since then.
        time: when this is decided, ISO 8601.
    """
    what = f"{action} was decided {seconds:.0f} s ago and cannot be carried out"
    return _run_again(
        f"{what}: the agent waits for the store of the rendezvous, which does not answer", time=time
    )


def _off_this_node(what: str, history: History, rules: Rules, *, time: str) -> Decision:
    """The node to blame is this one: it leaves where the job may go on without it, else the job ends."""
    if refusal := gate.never(rules) or gate.no_progress(history, rules):
        reason = f"{what}; {refusal.reason}"
        return Decision(action="fail", reason=reason, time=time, exit_code=gate.EXIT_REFUSED)
    if gate.why_none(rules, history) or not may_leave(rules):
        return _run_again(what, time=time)
    then = f"{leaving('this node', rules)}, {gate.which_restart(history)}"
    reason = f"{what}; {then}; have this node checked before it comes back"
    return Decision(action="isolate", reason=reason, time=time, exit_code=gate.EXIT_RUN_AGAIN)


def _run_again(what: str, *, time: str) -> Decision:
    reason = f"{what}; {gate.RUN_AGAIN}"
    return Decision(action="fail", reason=reason, time=time, exit_code=gate.EXIT_RUN_AGAIN)
