"""All settings from everything that was given, by strength, and what they mean for each other.

It must not know what is watched or decided with them. What contradicts itself is one clear line; what has no
effect is a note, said once at the start.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent.health.api.token import TokenError, read_token
from rankscope.agent.notices.targets import read_targets
from rankscope.agent.settings import aimaster, table
from rankscope.agent.settings.file import found_layer, named_layer
from rankscope.agent.settings.group_timeouts import warning
from rankscope.agent.settings.hang import resolve_hangs
from rankscope.agent.settings.layers import Chosen, Given, Layer, command_line, environment, read
from rankscope.agent.settings.notes import ignored_words, mistyped_variables
from rankscope.agent.settings.parsing import port
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError
from rankscope.diag.store.job import home

HEALTH_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"


def resolve(
    arguments: argparse.Namespace, environ: Mapping[str, str], *, has_gpu: bool | None = None
) -> Settings:
    """Read every setting: flag, then variable, then file, then AIMaster's default or ours.

    Args:
        arguments: what the parser of ``diag run`` left.
        environ: the environment of the launch.
        has_gpu: whether NCCL may be in use; ``None`` to look.

    Raises:
        UsageError: a value is not allowed, two contradict each other, a file cannot be read. One line: where,
            what, what is allowed.
    """
    layers, unread = _layers(arguments, environ)
    chosen = Chosen(layers)
    restarts = _restarts(chosen)
    hangs = resolve_hangs(chosen)
    health_port, port_source = _health_port(chosen, environ)
    sources = {option.name: chosen.source(option) for option in table.OPTIONS}
    sources |= restarts.sources | hangs.sources | port_source
    notes = [unread, *ignored_words(chosen), *hangs.notes, *mistyped_variables(environ)]
    if hangs.detection and hangs.limits.act_after is not None:
        notes.append(
            warning(
                hangs.limits.act_after,
                sources[table.HANG_INTERVAL.name],
                getattr(arguments, "training_script_args", None) or (),
                environ,
                has_gpu=Path("/dev/nvidiactl").exists() if has_gpu is None else has_gpu,
            )
            or ""
        )
    return Settings(
        execution_mode=chosen.value(table.EXECUTION_MODE),
        critical_roles=chosen.value(table.CRITICAL_ROLES),
        restart_enabled=restarts.enabled,
        max_restarts=restarts.number,
        restart_timeout=chosen.value(table.RESTART_TIMEOUT),
        c4d=hangs.c4d,
        c4d_log_level=chosen.value(table.C4D_LOG_LEVEL),
        c4d_common_envs=chosen.value(table.C4D_COMMON_ENVS),
        fault_tolerant_policy=chosen.value(table.POLICY),
        max_same_error=chosen.value(table.MAX_SAME_ERROR),
        max_failure_rate=chosen.value(table.MAX_FAILURE_RATE),
        no_progress_limit=chosen.value(table.NO_PROGRESS_LIMIT),
        isolate_nodes=chosen.value(table.ISOLATE_NODES),
        retryable_errors=chosen.value(table.RETRYABLE_ERRORS),
        retryable_exit_codes=chosen.value(table.RETRYABLE_EXIT_CODES),
        notify_on=chosen.value(table.NOTIFY_ON),
        webhooks=_checked_notices(chosen, environ),
        webhook_format=chosen.value(table.WEBHOOK_FORMAT),
        notify_command=chosen.value(table.NOTIFY_COMMAND),
        allow_locals=chosen.value(table.ALLOW_LOCALS),
        rank_assignment=chosen.value(table.RANK_ASSIGNMENT),
        hang_detection=hangs.detection,
        hang=hangs.limits,
        straggler_interval=chosen.value(table.STRAGGLER_INTERVAL),
        on_hang=chosen.value(table.ON_HANG),
        evidence_budget=chosen.value(table.EVIDENCE_BUDGET),
        log_capture=chosen.value(table.LOG_CAPTURE),
        diag_port=health_port,
        diag_host=chosen.value(table.DIAG_HOST),
        token_file=_checked_token_file(chosen),
        sources=sources,
        notes=tuple(note for note in notes if note),
    )


def _layers(arguments: argparse.Namespace, environ: Mapping[str, str]) -> tuple[list[Layer], str]:
    """All that was given, the strongest first, and a line about a file that was found and not read.

    A line of AIMaster's stands right below whoever gave it.
    """
    flags, variables = command_line(arguments), environment(environ)
    config = flags.get(table.DIAG_CONFIG.name) or variables.get(table.DIAG_CONFIG.name)
    file, unread = (named_layer(config), "") if config is not None else found_layer(home(environ))
    layers: list[Layer] = []
    line: Given | None = None
    for layer in (flags, variables, file):
        layers.append(layer)
        if line is None and table.AIMASTER_ARGS.name in layer:
            line = layer[table.AIMASTER_ARGS.name]
            layers.append(aimaster.line(line))
    return ([*layers, aimaster.defaults()] if line is not None else layers), unread


@dataclass(frozen=True, slots=True)
class _Restarts:
    enabled: bool
    number: int
    sources: dict[str, str]


def _restarts(chosen: Chosen) -> _Restarts:
    """May the job be restarted, and how often.

    A number above 0 says yes, unless a source at least as strong says no; one that only AIMaster's line names
    says nothing, as in AIMaster.

    Raises:
        UsageError: torchrun's number and AIMaster's differ.
    """
    given = _restart_number(chosen)
    number = table.MAX_RESTARTS.default if given is None else read(table.MAX_RESTARTS, given)
    answer = chosen.given(table.ENABLE_RESTART)
    enabled, why = chosen.value(table.ENABLE_RESTART), chosen.source(table.ENABLE_RESTART)
    implied = given is not None and not given.aimaster and number > 0
    if given is not None and implied and (answer is None or given.strength < answer.strength):
        enabled, why = True, given.source
    source = given.source if given is not None else "default"
    independent = chosen.value(table.EXECUTION_MODE) == "Async"
    if not enabled and not independent:
        number, source = 0, why if answer is not None else source
    return _Restarts(enabled, number, {table.ENABLE_RESTART.name: why, table.MAX_RESTARTS.name: source})


def _restart_number(chosen: Chosen) -> Given | None:
    ours, torch_s = chosen.given(table.MAX_RESTARTS), chosen.given(table.TORCH_RESTARTS)
    if ours is None or torch_s is None:
        return ours or torch_s
    numbers = read(table.MAX_RESTARTS, ours), read(table.TORCH_RESTARTS, torch_s)
    if ours.strength == torch_s.strength and numbers[0] != numbers[1]:
        raise UsageError(
            f"{torch_s.source} {numbers[1]} and {ours.source} {numbers[0]}: the same number, give it once"
        )
    return min(ours, torch_s, key=lambda each: each.strength)


def _checked_notices(chosen: Chosen, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses as given, once they and the command have been seen to be of use.

    Raises:
        UsageError: one is not; says which, and nothing that is secret.
    """
    webhooks, form = chosen.value(table.WEBHOOK), chosen.value(table.WEBHOOK_FORMAT)
    command = chosen.value(table.NOTIFY_COMMAND)
    for option, addresses, program in ((table.WEBHOOK, webhooks, ""), (table.NOTIFY_COMMAND, (), command)):
        try:
            read_targets(addresses, form, program, environ)
        except UsageError as error:
            message = str(error).replace(option.flag, chosen.source(option), 1)
            raise UsageError(message, hint=error.hint) from None
    return webhooks


def _checked_token_file(chosen: Chosen) -> str:
    """The named file, absolute, once a token has been seen in it.

    Raises:
        UsageError: there is none.
    """
    named = chosen.value(table.TOKEN_FILE)
    if not named:
        return ""
    path = Path(named).absolute()
    try:
        read_token(path)
    except TokenError as error:
        raise UsageError(f"{chosen.source(table.TOKEN_FILE)}: {error}", hint=error.hint) from None
    return str(path)


def _health_port(chosen: Chosen, environ: Mapping[str, str]) -> tuple[int | None, dict[str, str]]:
    """Torch's own variable names the port too; torch logs and goes on when it is no number."""
    value = chosen.value(table.DIAG_PORT)
    if value is not None:
        return value, {}
    try:
        return port(environ.get(HEALTH_PORT, "")), {table.DIAG_PORT.name: HEALTH_PORT}
    except ValueError:
        return None, {}
