"""What to do about workers that failed: all of them together (Sync), or one alone (Async). Pure.

Whether a failure may be retried is read by ``agent.failures`` from the root's exit code and log alone; here
it is only used.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.agent.failures.model import Failure
from rankscope.agent.policy import gate
from rankscope.agent.policy.isolation import blocked_ranks
from rankscope.agent.policy.situation import History, Rules
from rankscope.diag.model import Action, Decision, Diagnosis
from rankscope.diag.ranks import fold_ranks


def decide_on_failure(
    diagnosis: Diagnosis | None, failure: Failure | None, history: History, rules: Rules, *, time: str
) -> Decision:
    """Decide about a job whose workers start and stop as one, of which one has failed.

    Args:
        diagnosis: what is known of the job, ``None`` when nobody looked.
        failure: the root, ``None`` when none could be told.
        history: what the job has been through.
        rules: what the user allows.
        time: when this is decided, ISO 8601.
    """
    choice = _refused(failure, history, rules) or _retried(failure, history, rules)
    if choice.action == "restart" and (blocked := blocked_ranks(diagnosis)):
        why = f"a worker blocked in the kernel cannot be restarted where rank {blocked[0]} is"
        choice = _Choice("fail", f"{why}; {gate.RUN_AGAIN}", gate.EXIT_RUN_AGAIN)
    what, culprits = _told(diagnosis, failure)
    incident = diagnosis.incident if diagnosis is not None else None
    return choice.decision(what, culprits, time=time, incident=incident)


def decide_on_worker_failure(failure: Failure, history: History, rules: Rules, *, time: str) -> Decision:
    """Decide about one failed worker of a job whose workers are independent (Async).

    With ``restart`` that worker alone is restarted, unless ``restarts_all`` says otherwise.

    Args:
        failure: how it failed.
        history: what that worker has been through; ``failed_workers`` and ``workers`` are the job's.
        rules: what the user allows.
        time: when this is decided, ISO 8601.
    """
    # Independent workers need not train: one that goes over a list of files makes no step.
    choice = (
        _refused(failure, history, rules, trains=False)
        or _critical(failure, rules)
        or _retried(failure, history, rules, alone=not restarts_all(failure, rules))
    )
    return choice.decision(_phrase(failure), (failure.rank,), time=time)


def restarts_all(failure: Failure, rules: Rules) -> bool:
    """Whether a ``restart`` after this failure is one of all workers: others depend on a critical one."""
    return rules.execution_mode == "Sync" or failure.role in rules.critical_roles


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is done; ``then`` is a phrase."""

    action: Action
    then: str
    exit_code: int | None = None

    def decision(
        self, what: str, culprits: tuple[int, ...], *, time: str, incident: str | None = None
    ) -> Decision:
        return Decision(
            action=self.action,
            reason=f"{what}; {self.then}",
            time=time,
            incident=incident,
            culprits=culprits,
            exit_code=self.exit_code,
        )


def _told(diagnosis: Diagnosis | None, failure: Failure | None) -> tuple[str, tuple[int, ...]]:
    """What happened, and who did it: in the words of the diagnosis where it names the root."""
    if failure is not None and (diagnosis is None or failure.rank not in diagnosis.culprits):
        return _phrase(failure, verb=_first(failure)), (failure.rank,)
    if diagnosis is not None:
        return diagnosis.summary, diagnosis.culprits
    return "a worker has failed", ()


def _phrase(failure: Failure, *, verb: str = "failed") -> str:
    code = failure.exit_code
    how = f" (exit code {code})" if code is not None and code > 0 else ""
    return f"rank {failure.rank} on {failure.node} {verb}{how}: {failure.message}"


def _first(failure: Failure) -> str:
    tied = failure.tied_with
    if not tied:
        return "failed first"
    return f"failed first, rank{'s' * (len(tied) > 1)} {fold_ranks(tied)} at the same instant"


def _refused(
    failure: Failure | None, history: History, rules: Rules, *, trains: bool = True
) -> _Choice | None:
    instance = failure.instance if failure is not None else ""
    refusal = (
        gate.never(rules)
        or _not_retryable(failure, rules)
        or gate.same_error(history, rules, instance=instance)
        or gate.failure_rate(history, rules)
        or (gate.no_progress(history, rules, instance=instance) if trains else None)
    )
    return _Choice("fail", refusal.reason, gate.EXIT_REFUSED) if refusal is not None else None


def _not_retryable(failure: Failure | None, rules: Rules) -> gate.Refusal | None:
    if rules.fault_tolerant_policy != "ExitCodeAndErrorMsg" or (failure is not None and failure.retryable):
        return None
    why = failure.because if failure is not None else "nobody can tell which worker failed first"
    return gate.Refusal(
        f"--fault-tolerant-policy ExitCodeAndErrorMsg does not retry it ({why})",
        "mend it, or name it with --retryable-errors,",
    )


def _critical(failure: Failure, rules: Rules) -> _Choice | None:
    """A worker that others depend on cannot be restarted alone."""
    if rules.restart_enabled or not restarts_all(failure, rules):
        return None
    return _failed(
        f"role {failure.role} is critical (--critical-roles) and the job may not be restarted", failure, rules
    )


def _retried(failure: Failure | None, history: History, rules: Rules, *, alone: bool = False) -> _Choice:
    if why := gate.why_none(rules, history):
        return _failed(why, failure, rules, used_up=gate.may_restart(rules, history))
    who = "it alone is restarted" if alone else "all workers are restarted"
    return _Choice("restart", f"{who}, {gate.which_restart(history)}")


def _failed(why: str, failure: Failure | None, rules: Rules, *, used_up: bool = False) -> _Choice:
    """The end of the job; another run may do for a fault that passes."""
    # torchrun knows no kinds of failures: without restarts it exits with 1, and so do we unless asked.
    told_apart = used_up or rules.fault_tolerant_policy == "ExitCodeAndErrorMsg"
    if failure is not None and failure.retryable and told_apart:
        then = f"{why}; the fault may pass ({failure.because}), {gate.RUN_AGAIN}"
        return _Choice("fail", then, gate.EXIT_RUN_AGAIN)
    return _Choice(
        "fail", f"{why}, so the job fails; mend the error, or allow more restarts", gate.EXIT_FAILED
    )
