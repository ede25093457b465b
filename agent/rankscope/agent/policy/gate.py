"""May the job be started again after this? Asked by every decision that would stop its workers.

First what forbids any further run (exit code 93), then how many restarts there are. It must not know what
happened: a hang, a failure and a timer ask the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rankscope.agent.policy.situation import History, Rules

EXIT_FAILED: Final = 1
"""As torchrun: a worker failed, and no restart is left or none was allowed."""
EXIT_RUN_AGAIN: Final = 75
"""sysexits' EX_TEMPFAIL: a scheduler should run the job again."""
EXIT_REFUSED: Final = 93
"""A scheduler should not run the job again: it would end the same way, or the user does not want it."""
RUN_AGAIN: Final = "run the job again"
"""In the reason of every ``fail`` with 75."""
BEFORE_THE_NEXT_RUN: Final = "before the next run"
"""In the reason of every ``fail`` with 93."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nobody should start the job again as it is: a phrase, and what to do first."""

    why: str
    first: str

    @property
    def reason(self) -> str:
        """Both, for a person."""
        return f"{self.why}; {self.first} {BEFORE_THE_NEXT_RUN}"


def never(rules: Rules) -> Refusal | None:
    """The user wants no restart, whatever happens."""
    if rules.fault_tolerant_policy != "Never":
        return None
    return Refusal("--fault-tolerant-policy Never allows no restart", "look at the cause")


def same_error(history: History, rules: Rules, *, instance: str) -> Refusal | None:
    """The same error has come too often on one instance (``node/rank 3``)."""
    if rules.max_same_error < 1 or history.same_errors <= rules.max_same_error:
        return None
    return Refusal(
        f"this is time {history.same_errors} of the same error on {instance or 'one instance'}"
        f" (--max-num-of-same-error {rules.max_same_error})",
        "mend it, or take that node out,",
    )


def failure_rate(history: History, rules: Rules) -> Refusal | None:
    """Too large a share of the workers has failed."""
    if rules.max_failure_rate < 0 or history.failed_workers <= rules.max_failure_rate * history.workers:
        return None
    return Refusal(
        f"{history.failed_workers} of {history.workers} workers have failed"
        f" (--max-tolerated-failure-rate {rules.max_failure_rate:g})",
        "look for what they have in common",
    )


def no_progress(history: History, rules: Rules, *, instance: str = "") -> Refusal | None:
    """Restarts do not help: the job comes back and gets no further.

    Args:
        history: what the job has been through.
        rules: what the user allows.
        instance: where it fails now, ``""`` when nothing failed.
    """
    limit, count = rules.no_progress_limit, history.without_progress
    if limit < 1 or count < limit or not history.progress_known:
        return None
    times = "the last restart has" if count == 1 else f"{count} restarts in a row have"
    same = history.same_errors if instance else 0
    again = f", and this is time {same} of the same error on {instance}" if same > 1 else ""
    return Refusal(f"{times} made no new step{again} (--no-progress-limit {limit})", "mend what repeats")


def may_restart(rules: Rules, history: History) -> bool:
    """Whether restarts are allowed at all, used up or not; Async: of one worker alone."""
    enabled = rules.restart_enabled or rules.execution_mode == "Async"
    return enabled and history.restarts_allowed > 0


def why_none(rules: Rules, history: History) -> str:
    """Why there is no restart, a phrase; ``""`` while there is one."""
    if not may_restart(rules, history):
        return "no restarts are allowed (--enable-job-restart, --max-restarts)"
    if history.restarts_left > 0:
        return ""
    if history.restarts_allowed == 1:
        return "the one restart that is allowed is used up"
    return f"all {history.restarts_allowed} restarts are used up"


def which_restart(history: History) -> str:
    """``restart 2 of 3``."""
    return f"restart {history.restarts_used + 1} of {history.restarts_allowed}"
