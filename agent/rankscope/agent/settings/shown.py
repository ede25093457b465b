"""Settings for a person or a record: what is in force, where it came from, and no secret. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypedDict

from rankscope.agent.notices.targets import shown_webhook
from rankscope.agent.settings import table
from rankscope.agent.settings.values import Settings

Shown = str | int | float | bool | list[str | int | float] | dict[str, str]


class Described(TypedDict):
    """One setting: plain JSON."""

    value: Shown
    source: str


_VALUES: Final[Mapping[str, Callable[[Settings], Shown]]] = {
    table.EXECUTION_MODE.name: lambda each: each.execution_mode,
    table.CRITICAL_ROLES.name: lambda each: list(each.critical_roles),
    table.ENABLE_RESTART.name: lambda each: each.restart_enabled,
    table.MAX_RESTARTS.name: lambda each: each.max_restarts,
    table.RESTART_TIMEOUT.name: lambda each: _or(each.restart_timeout, "off"),
    table.RANK_ASSIGNMENT.name: lambda each: each.rank_assignment,
    table.HANG_DETECTION.name: lambda each: each.hang_detection,
    table.DIAGNOSE_AFTER.name: lambda each: _or(each.hang.diagnose_after, "auto"),
    table.HANG_INTERVAL.name: lambda each: _or(each.hang.act_after, "auto"),
    table.ON_HANG.name: lambda each: each.on_hang,
    table.C4D_DETECTION.name: lambda each: each.c4d,
    table.C4D_LOG_LEVEL.name: lambda each: each.c4d_log_level,
    table.C4D_COMMON_ENVS.name: lambda each: dict(each.c4d_common_envs),
    table.LINGER_DETECTION.name: lambda each: each.hang.exit_after is not None,
    table.LINGER_LIMIT.name: lambda each: _or(each.hang.exit_after, "off"),
    table.STRAGGLER_INTERVAL.name: lambda each: _or(each.straggler_interval, "auto") or "off",
    table.POLICY.name: lambda each: each.fault_tolerant_policy,
    table.MAX_SAME_ERROR.name: lambda each: each.max_same_error,
    table.MAX_FAILURE_RATE.name: lambda each: each.max_failure_rate,
    table.NO_PROGRESS_LIMIT.name: lambda each: each.no_progress_limit,
    table.ISOLATE_NODES.name: lambda each: each.isolate_nodes,
    table.RETRYABLE_ERRORS.name: lambda each: list(each.retryable_errors),
    table.RETRYABLE_EXIT_CODES.name: lambda each: list(each.retryable_exit_codes),
    table.EVIDENCE_BUDGET.name: lambda each: each.evidence_budget,
    table.ALLOW_LOCALS.name: lambda each: each.allow_locals,
    table.LOG_CAPTURE.name: lambda each: each.log_capture,
    table.NOTIFY_ON.name: lambda each: sorted(each.notify_on),
    table.WEBHOOK.name: lambda each: [shown_webhook(text) for text in each.webhooks],
    table.WEBHOOK_FORMAT.name: lambda each: each.webhook_format,
    table.NOTIFY_COMMAND.name: lambda each: shown_command(each.notify_command),
    table.DIAG_PORT.name: lambda each: _or(each.diag_port, "auto"),
    table.DIAG_HOST.name: lambda each: each.diag_host,
    table.TOKEN_FILE.name: lambda each: each.token_file,
}
"""Of all settings but those that only name where others come from: each value says that itself."""


def described(settings: Settings) -> dict[str, Described]:
    """By option name: the value in force and its source, as plain JSON, without secrets."""
    return {
        name: {"value": value(settings), "source": settings.sources.get(name, "default")}
        for name, value in _VALUES.items()
    }


def shown_command(command: str) -> str:
    """The program that a command starts: arguments and variables may hold secrets."""
    words = command.split()
    program = next((word for word in words if "=" not in word), "")
    return f"{program} ..." if len(words) > 1 else program


def _or(value: float | None, word: str) -> float | str:
    return word if value is None else value
