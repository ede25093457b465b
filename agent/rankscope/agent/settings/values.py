"""What the user wants, as everything else reads it. Pure values: how they are found is ``resolution``'s.

It must not know flags, variables, files or torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rankscope.watchdog.limits import HangSettings

ExecutionMode = Literal["Sync", "Async"]
FaultTolerantPolicy = Literal["OnFailure", "ExitCodeAndErrorMsg", "Never"]
C4dLogLevel = Literal["Info", "Warning", "Error"]
WebhookFormat = Literal["cloudevents", "slack"]
Isolation = Literal["auto"] | bool
OnHang = Literal["auto", "log", "notify", "hold", "restart"]
LogCapture = Literal["auto", "on", "off"]

NOTIFY_ON_DEFAULT: Final = frozenset({"incident", "decision", "restart", "message", "end"})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings in force.

    Attributes:
        execution_mode: Sync: a failure restarts the job; Async: a failed worker alone is restarted.
        critical_roles: roles whose failure ends an Async job that may not be restarted.
        restart_enabled: whether the job may be restarted at all.
        max_restarts: how often; 0 when it may not be restarted. Async: how often each worker, whatever
            ``restart_enabled`` says.
        restart_timeout: seconds from a restart's start to running workers, ``None`` for as long as it takes.
        c4d: whether classes and severities of C4D are told.
        c4d_log_level: the least severity that is printed.
        c4d_common_envs: C4D's own variables, as given.
        fault_tolerant_policy: which failures may be retried.
        max_same_error: past so many of the same error on one instance the job fails, 0 for no limit.
        max_failure_rate: share of workers (0-1) past which the job fails, negative for off.
        no_progress_limit: restarts in a row without a new step after which the job fails, 0 for no limit.
        isolate_nodes: whether a node that is to blame leaves the job.
        retryable_errors: further texts at the end of the root's log that make a failure retryable.
        retryable_exit_codes: further exit codes that do, negative for a signal.
        notify_on: kinds of events that notices are sent for.
        webhooks: where notices are posted to, as given: addresses (may hold secrets, never shown whole),
            ``@FILE``, ``env:NAME``.
        webhook_format: what is posted to them.
        notify_command: a program and arguments that get the event on stdin, empty for none.
        allow_locals: whether local variables may be kept with stacks.
        rank_assignment: ``torch``, ``offset:N``, ``explicit:4,5,6,7`` or ``module:function``.
        straggler_interval: seconds between two looks for what is slow, 0 for never, ``None`` for looking when
            steps take longer.
        evidence_budget: seconds that evidence may take before workers are stopped, 0 for none.
        diag_port: port of the health server, 0 for a free one, ``None`` for a free one on loopback.
        diag_host: the address it binds, empty for what its port asks for.
        token_file: path of a file with the API's token, empty for the job's own.
        sources: by option name (dashed): the flag, the variable, or file and key that a value came from, or
            ``default``.
        notes: lines to say once at start: what has no effect, what does not fit together.
    """

    execution_mode: ExecutionMode = "Sync"
    critical_roles: tuple[str, ...] = ("ps", "chief")
    restart_enabled: bool = False
    max_restarts: int = 0
    restart_timeout: float | None = None
    c4d: bool = True
    c4d_log_level: C4dLogLevel = "Warning"
    c4d_common_envs: Mapping[str, str] = field(default_factory=dict)
    fault_tolerant_policy: FaultTolerantPolicy = "OnFailure"
    max_same_error: int = 10
    max_failure_rate: float = -1.0
    no_progress_limit: int = 3
    isolate_nodes: Isolation = "auto"
    retryable_errors: tuple[str, ...] = ()
    retryable_exit_codes: tuple[int, ...] = ()
    notify_on: frozenset[str] = NOTIFY_ON_DEFAULT
    webhooks: tuple[str, ...] = ()
    webhook_format: WebhookFormat = "cloudevents"
    notify_command: str = ""
    allow_locals: bool = False
    rank_assignment: str = "torch"
    hang_detection: bool = True
    hang: HangSettings = field(default_factory=HangSettings)
    straggler_interval: float | None = None
    on_hang: OnHang = "auto"
    evidence_budget: float = 5.0
    log_capture: LogCapture = "auto"
    diag_port: int | None = None
    diag_host: str = ""
    token_file: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def apply_to(self, arguments: argparse.Namespace) -> None:
        """Put what torch's launcher must know into its own arguments: the number of restarts."""
        arguments.max_restarts = self.max_restarts
