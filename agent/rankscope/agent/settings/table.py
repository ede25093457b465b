"""The table of settings: name, group, default, what is allowed, what it means.

Flags, variables, the settings file, ``diag run --help`` and the reference are made of it, or checked against
it. It must not know where a value comes from, or what a setting does.
"""

from __future__ import annotations

from typing import Final, get_args

from rankscope.agent.notices.topics import TOPICS
from rankscope.agent.ranks.layout import ALLOWED as RANK_SCHEMES
from rankscope.agent.settings import parsing
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.parsing import FALSE, TRUE, C, one
from rankscope.agent.settings.values import (
    NOTIFY_ON_DEFAULT,
    C4dLogLevel,
    ExecutionMode,
    FaultTolerantPolicy,
    Isolation,
    LogCapture,
    OnHang,
    WebhookFormat,
)
from rankscope.watchdog.limits import LINGER_INTERVAL

RESTARTS: Final = "restarts"
HANGS: Final = "hangs"
FAILURES: Final = "failures"
EVIDENCE: Final = "evidence and logs"
NOTICES: Final = "notices"
SERVER: Final = "health server"
SOURCES: Final = "where settings come from"
GROUPS: Final = {
    RESTARTS: "what is restarted, and how often",
    HANGS: "what counts as a hang, and what is done about it",
    FAILURES: "which failures may be retried",
    EVIDENCE: "what is kept",
    NOTICES: "who is told",
    SERVER: "where it listens",
    SOURCES: "A flag is stronger than its variable (RANKSCOPE_ and its name in capitals), that is stronger "
    "than the settings file.",
}

NOTIFY_KINDS: Final = tuple(TOPICS)
"""What notices can be sent for; ``all`` and ``none`` are understood as well."""

_BOOLEAN: Final = "True or False"
_SECONDS: Final = "a positive number of seconds"


def _switch(name: str, group: str, *, default: bool, meaning: str) -> Option[bool]:
    return Option(
        name,
        group,
        one(parsing.boolean),
        default,
        _BOOLEAN,
        meaning,
        metavar="True|False",
        words=TRUE | FALSE,
    )


def _choice(
    name: str, group: str, words: tuple[C, ...], default: C, meaning: str, *, metavar: str
) -> Option[C]:
    allowed = (" or " if len(words) == 2 else ", ").join(words)  # noqa: PLR2004 - this or that
    return Option(name, group, one(parsing.one_of(words)), default, allowed, meaning, metavar=metavar)


EXECUTION_MODE: Final[Option[ExecutionMode]] = _choice(
    "job-execution-mode",
    RESTARTS,
    get_args(ExecutionMode),
    "Sync",
    "Sync: a failure restarts the whole job. Async: workers are independent, a failed one alone is "
    "restarted; hang and exit-hang detection are off",
    metavar="MODE",
)
CRITICAL_ROLES: Final[Option[tuple[str, ...]]] = Option(
    "critical-roles",
    RESTARTS,
    parsing.roles,
    ("ps", "chief"),
    "names of roles, or none",
    "Async: a failed worker of such a role ends the job, unless it may be restarted",
    shown="ps,chief",
    metavar="ROLE,...",
    many=True,
)
ENABLE_RESTART: Final = _switch(
    "enable-job-restart",
    RESTARTS,
    default=False,
    meaning="may the job be restarted; --max-restarts N with N > 0 says so as well",
)
MAX_RESTARTS: Final[Option[int]] = Option(
    "max-num-of-job-restart",
    RESTARTS,
    one(parsing.count),
    3,
    "a whole number, 0 or more",
    "restarts after which the job fails; the same number as torchrun's --max-restarts",
    metavar="N",
)
RESTART_TIMEOUT: Final[Option[float | None]] = Option(
    "job-restart-timeout",
    RESTARTS,
    one(parsing.seconds_or_off),
    None,
    _SECONDS + ", or off (-1)",
    "seconds that a restart may take until workers run; past it the job fails",
    shown="off",
    metavar="SECONDS",
)
RANK_ASSIGNMENT: Final[Option[str]] = Option(
    "rank-assignment",
    RESTARTS,
    one(parsing.rank_assignment),
    "torch",
    RANK_SCHEMES,
    "who gets which rank",
    metavar="HOW",
)
HANG_DETECTION: Final = _switch("enable-job-hang-detection", HANGS, default=True, meaning="watch for hangs")
DIAGNOSE_AFTER: Final[Option[float | None]] = Option(
    "diagnose-after",
    HANGS,
    one(parsing.seconds_or_auto),
    None,
    _SECONDS + ", or auto",
    "seconds without progress after which evidence is taken and a diagnosis stored; nothing is done to "
    "the job. auto: learned from the job's own rhythm",
    shown="auto",
    metavar="SECONDS",
)
HANG_INTERVAL: Final[Option[float | None]] = Option(
    "job-hang-interval",
    HANGS,
    one(parsing.seconds_or_auto),
    None,
    _SECONDS + ", or auto",
    "seconds without progress after which a confirmed hang is acted on. auto: 180 when the diagnosis is of "
    "high confidence, else 1800",
    shown="auto",
    metavar="SECONDS",
)
ON_HANG: Final[Option[OnHang]] = _choice(
    "on-hang",
    HANGS,
    get_args(OnHang),
    "auto",
    "what to do then. auto: restart where restarts are allowed; without any, fail if an interval was "
    "given, else only notify",
    metavar="WHAT",
)
C4D_DETECTION: Final = _switch(
    "enable-c4d-hang-detection",
    HANGS,
    default=True,
    meaning="tell C4D's classes and severities; needs hang detection",
)
C4D_LOG_LEVEL: Final[Option[C4dLogLevel]] = _choice(
    "c4d-log-level",
    HANGS,
    get_args(C4dLogLevel),
    "Warning",
    "the least severity that is printed; all is stored",
    metavar="LEVEL",
)
C4D_COMMON_ENVS: Final[Option[dict[str, str]]] = Option(
    "c4d-common-envs",
    HANGS,
    parsing.c4d_variables,
    {},
    "C4D_NAME=value pairs; C4D_HANG_TIMEOUT in seconds and C4D_HANG_TIMES above 0",
    "C4D's own variables: C4D_HANG_TIMEOUT sets --diagnose-after, and that many seconds C4D_HANG_TIMES times "
    "(18) --job-hang-interval, where these are not given",
    shown="none",
    metavar="K=V,...",
    many=True,
)
LINGER_DETECTION: Final = _switch(
    "enable-job-exit-hang-detection",
    HANGS,
    default=True,
    meaning="watch for ranks that linger after others have ended",
)
LINGER_LIMIT: Final[Option[float]] = Option(
    "job-exit-hang-interval",
    HANGS,
    one(parsing.positive_seconds),
    LINGER_INTERVAL,
    _SECONDS,
    "seconds without progress after which ranks that linger are suspected, once others have ended",
    metavar="SECONDS",
)
STRAGGLER_INTERVAL: Final[Option[float | None]] = Option(
    "straggler-interval",
    HANGS,
    one(parsing.interval_or_auto),
    None,
    _SECONDS + ", auto, or off (-1)",
    "seconds between two looks for what is slow. auto: only when steps take 20 % longer than this job's "
    "steps did; off: never. What is found is stored and said, nothing is done about it",
    shown="auto",
    metavar="SECONDS",
)
POLICY: Final[Option[FaultTolerantPolicy]] = _choice(
    "fault-tolerant-policy",
    FAILURES,
    get_args(FaultTolerantPolicy),
    "OnFailure",
    "OnFailure: any failure may be retried, as torchrun does. ExitCodeAndErrorMsg: only by exit code, or by "
    "a known message at the end of the failed rank's log. Never: none",
    metavar="POLICY",
)
MAX_SAME_ERROR: Final[Option[int]] = Option(
    "max-num-of-same-error",
    FAILURES,
    one(parsing.count_or_off),
    10,
    "a whole number, 0 or -1 for no limit",
    "times that the same error may come back on one instance; past it the job fails",
    metavar="N",
)
MAX_FAILURE_RATE: Final[Option[float]] = Option(
    "max-tolerated-failure-rate",
    FAILURES,
    one(parsing.share_or_off),
    -1.0,
    "a share from 0 to 1, or -1 for off",
    "share of the workers that may fail; past it the job fails",
    shown="-1",
    metavar="SHARE",
)
NO_PROGRESS_LIMIT: Final[Option[int]] = Option(
    "no-progress-limit",
    FAILURES,
    one(parsing.count_or_off),
    3,
    "a whole number, 0 or -1 for no limit",
    "restarts in a row without a new step after which the job fails",
    metavar="N",
)
ISOLATE_NODES: Final[Option[Isolation]] = Option(
    "isolate-nodes",
    FAILURES,
    one(parsing.auto_or_boolean),
    "auto",
    "auto, True or False",
    "may a node that is to blame leave the job. auto: where --nnodes MIN:MAX has room; the job ends with 75 "
    "where it has none",
    metavar="auto|True|False",
    words=TRUE | FALSE | {"auto"},
)
RETRYABLE_ERRORS: Final[Option[tuple[str, ...]]] = Option(
    "retryable-errors",
    FAILURES,
    parsing.texts,
    (),
    "texts, none of them empty",
    "further texts at the end of the failed rank's log that make a failure retryable",
    shown="none",
    metavar="TEXT,...",
    many=True,
)
RETRYABLE_EXIT_CODES: Final[Option[tuple[int, ...]]] = Option(
    "retryable-exit-codes",
    FAILURES,
    parsing.exit_codes,
    (),
    "exit codes from 1 to 255, and signals as SIGKILL or -9",
    "further exit codes that make a failure retryable",
    shown="none",
    metavar="CODE,...",
    many=True,
)
EVIDENCE_BUDGET: Final[Option[float]] = Option(
    "evidence-budget",
    EVIDENCE,
    one(parsing.seconds),
    5.0,
    "a number of seconds, 0 for none",
    "seconds that evidence may take before workers are stopped",
    metavar="SECONDS",
)
ALLOW_LOCALS: Final = _switch(
    "allow-locals",
    EVIDENCE,
    default=False,
    meaning="may local variables be kept with stacks; they may hold data and secrets",
)
LOG_CAPTURE: Final[Option[LogCapture]] = _choice(
    "log-capture",
    EVIDENCE,
    get_args(LogCapture),
    "auto",
    "keep workers' output in files of the job folder, and show it unchanged. auto: off with "
    "--redirects/--tee and at a terminal",
    metavar="WHEN",
)
NOTIFY_ON: Final[Option[frozenset[str]]] = Option(
    "notify-on",
    NOTICES,
    parsing.some_of(NOTIFY_KINDS),
    NOTIFY_ON_DEFAULT,
    "some of " + ", ".join(NOTIFY_KINDS) + "; all, or none",
    "what notices are sent for",
    shown="incident,decision,restart,message,end",
    metavar="KIND,...",
    many=True,
)
WEBHOOK: Final[Option[tuple[str, ...]]] = Option(
    "webhook",
    NOTICES,
    parsing.addresses,
    (),
    "http or https addresses, @FILE or env:NAME",
    "where notices are posted to. Addresses with secrets belong in a file or a variable: others can read "
    "command lines",
    shown="none",
    metavar="URL",
    many=True,
    secret=True,
)
WEBHOOK_FORMAT: Final[Option[WebhookFormat]] = _choice(
    "webhook-format",
    NOTICES,
    get_args(WebhookFormat),
    "cloudevents",
    "what is posted: the event as CloudEvents JSON, or one line as Slack takes it",
    metavar="FORMAT",
)
NOTIFY_COMMAND: Final[Option[str]] = Option(
    "notify-command",
    NOTICES,
    one(str),
    "",
    "a command",
    "a program, with arguments, that gets the event on its stdin",
    shown="none",
    metavar="COMMAND",
    secret=True,
)
DIAG_PORT: Final[Option[int | None]] = Option(
    "diag-port",
    SERVER,
    one(parsing.port),
    None,
    "a port number, 0 for a free one",
    "port of the health server. auto: TORCHELASTIC_HEALTH_CHECK_PORT, else a free one on loopback",
    shown="auto",
    metavar="PORT",
)
DIAG_HOST: Final[Option[str]] = Option(
    "diag-host",
    SERVER,
    one(parsing.address),
    "",
    "an address",
    "address the health server binds. none: all when a port was asked for, else loopback",
    shown="none",
    metavar="ADDRESS",
)
TOKEN_FILE: Final[Option[str]] = Option(
    "token-file",
    SERVER,
    one(str),
    "",
    "a file with 16 to 512 letters, digits and -._~+/=",
    "a file with the token that opens the live page and the API. none: the job's own, <job folder>/token, "
    "made by its first agent",
    shown="none",
    metavar="FILE",
)
DIAG_CONFIG: Final[Option[str]] = Option(
    "diag-config",
    SOURCES,
    one(str),
    "",
    "a TOML file",
    "a file with settings. auto: $RANKSCOPE_HOME/config.toml where it exists",
    shown="auto",
    metavar="FILE",
    variable_name="RANKSCOPE_CONFIG",
)
AIMASTER_ARGS: Final[Option[str]] = Option(
    "aimaster-args",
    SOURCES,
    one(str),
    "",
    "AIMaster's arguments in one text",
    "a line of AIMaster's arguments; what it leaves out has AIMaster's defaults then, not those shown here",
    shown="none",
    metavar="ARGS",
)

OPTIONS: Final[tuple[Option[object], ...]] = (
    EXECUTION_MODE,
    CRITICAL_ROLES,
    ENABLE_RESTART,
    MAX_RESTARTS,
    RESTART_TIMEOUT,
    RANK_ASSIGNMENT,
    HANG_DETECTION,
    DIAGNOSE_AFTER,
    HANG_INTERVAL,
    ON_HANG,
    C4D_DETECTION,
    C4D_LOG_LEVEL,
    C4D_COMMON_ENVS,
    LINGER_DETECTION,
    LINGER_LIMIT,
    STRAGGLER_INTERVAL,
    POLICY,
    MAX_SAME_ERROR,
    MAX_FAILURE_RATE,
    NO_PROGRESS_LIMIT,
    ISOLATE_NODES,
    RETRYABLE_ERRORS,
    RETRYABLE_EXIT_CODES,
    EVIDENCE_BUDGET,
    ALLOW_LOCALS,
    LOG_CAPTURE,
    NOTIFY_ON,
    WEBHOOK,
    WEBHOOK_FORMAT,
    NOTIFY_COMMAND,
    DIAG_PORT,
    DIAG_HOST,
    TOKEN_FILE,
    DIAG_CONFIG,
    AIMASTER_ARGS,
)

TORCH_RESTARTS: Final[Option[int]] = Option(
    "max-restarts",
    RESTARTS,
    MAX_RESTARTS.read,
    0,
    MAX_RESTARTS.allowed,
    "torchrun's own flag and variable for the same number",
    variable_name="PET_MAX_RESTARTS",
)
WITHOUT_MEANING: Final = tuple(
    _switch(name, SOURCES, default=False, meaning="AIMaster's; has no meaning here")
    for name in ("enable-local-detection", "enable-perftracker")
)
READABLE: Final[tuple[Option[object], ...]] = (*OPTIONS, TORCH_RESTARTS, *WITHOUT_MEANING)
"""All that can be given, torchrun's number of restarts and AIMaster's empty words among them."""
