"""What to do about hangs, failures and all else that happens to a job (FAULT_TOLERANCE.md, "Decisions").

Pure functions: a diagnosis, a history and rules in, a ``Decision`` out. ``situation`` has the inputs,
``gate`` says whether the job may be started again, ``isolation`` whether a node leaves; ``hangs``,
``failures``, ``timers`` and ``ends`` decide. The table of all cases: ``docs/reference/decisions.md``.
"""

from __future__ import annotations

from rankscope.agent.policy.ends import (
    decide_on_left_workers,
    decide_on_restart_timeout,
    decide_on_stuck_agent,
    decide_on_stuck_kernel,
    decide_on_unknown_state,
)
from rankscope.agent.policy.failures import decide_on_failure, decide_on_worker_failure, restarts_all
from rankscope.agent.policy.gate import EXIT_FAILED, EXIT_REFUSED, EXIT_RUN_AGAIN
from rankscope.agent.policy.hangs import decide_on_exit_hang, decide_on_hang
from rankscope.agent.policy.situation import History, Rules
from rankscope.agent.policy.timers import decide_on_timer

__all__ = [
    "EXIT_FAILED",
    "EXIT_REFUSED",
    "EXIT_RUN_AGAIN",
    "History",
    "Rules",
    "decide_on_exit_hang",
    "decide_on_failure",
    "decide_on_hang",
    "decide_on_left_workers",
    "decide_on_restart_timeout",
    "decide_on_stuck_agent",
    "decide_on_stuck_kernel",
    "decide_on_timer",
    "decide_on_unknown_state",
    "decide_on_worker_failure",
    "restarts_all",
]
