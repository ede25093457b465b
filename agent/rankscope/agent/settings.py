"""What the user wants: flag, then ``RANKSCOPE_<FLAG>`` in the environment, then the default.

Every flag has a dashed and an underscore spelling, as torchrun's have. A value that is not allowed stops
the launch with one line: flag, value, what is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

from rankscope.agent.policy import OnHang
from rankscope.diag.errors import UsageError
from rankscope.watchdog.limits import LINGER_INTERVAL, HangSettings

T = TypeVar("T")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_ON_HANG: Final = ("auto", "log", "notify", "hold", "restart")
_LOG_CAPTURE: Final = ("auto", "on", "off")
MAX_PORT: Final = 65535


def _seconds_or_auto(text: str) -> float | None:
    if text.lower() == "auto":
        return None
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _interval_or_auto(text: str) -> float | None:
    """0 for off, ``None`` for auto."""
    return 0.0 if text.lower() in _FALSE - {"0"} else _seconds_or_auto(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def _positive_seconds(text: str) -> float:
    value = _seconds(text)
    if value <= 0:
        raise ValueError
    return value


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError


def _one_of(allowed: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError
        return text.lower()

    return read


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= MAX_PORT:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One setting.

    Attributes:
        name: dashed, without the leading dashes.
        read: turns text into a value; ``ValueError`` when it is not allowed.
        allowed: what is allowed, for the error line and the help.
    """

    name: str
    read: Callable[[str], T]
    default: T
    allowed: str
    help: str

    @property
    def flag(self) -> str:
        """``--name``."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "RANKSCOPE_" + self.name.replace("-", "_").upper()

    @property
    def dest(self) -> str:
        """The attribute argparse keeps it under."""
        return "rankscope_" + self.name.replace("-", "_")


HANG_DETECTION: Final = Option(
    "enable-job-hang-detection", _boolean, default=True, allowed="True or False", help="watch for hangs"
)
DIAGNOSE_AFTER: Final[Option[float | None]] = Option(
    "diagnose-after",
    _seconds_or_auto,
    default=None,
    allowed="a positive number of seconds, or auto",
    help="seconds without progress after which evidence is taken and a diagnosis stored; nothing is done to "
    "the job (auto: learned from the job's own rhythm)",
)
JOB_HANG_INTERVAL: Final[Option[float | None]] = Option(
    "job-hang-interval",
    _seconds_or_auto,
    default=None,
    allowed="a positive number of seconds, or auto",
    help="seconds without progress after which a confirmed hang is acted on (auto: 180 when the diagnosis is "
    "of high confidence, else 1800)",
)
JOB_EXIT_HANG_DETECTION: Final = Option(
    "enable-job-exit-hang-detection",
    _boolean,
    default=True,
    allowed="True or False",
    help="watch for ranks that linger after others have ended",
)
JOB_EXIT_HANG_INTERVAL: Final = Option(
    "job-exit-hang-interval",
    _positive_seconds,
    default=LINGER_INTERVAL,
    allowed="a positive number of seconds",
    help="seconds without progress after which ranks that linger are suspected, once others have ended",
)
STRAGGLER_INTERVAL: Final[Option[float | None]] = Option(
    "straggler-interval",
    _interval_or_auto,
    default=None,
    allowed="a positive number of seconds, auto, or off",
    help="seconds between two looks for what is slow (auto: only when steps take 20 % longer than this job's "
    "steps did; off: never). What is found is stored and said, nothing is done about it",
)
ON_HANG: Final = Option(
    "on-hang",
    _one_of(_ON_HANG),
    default="auto",
    allowed=", ".join(_ON_HANG),
    help="what to do then (auto: restart where restarts are allowed; without any, fail if an interval was "
    "given, else only notify)",
)
EVIDENCE_BUDGET: Final = Option(
    "evidence-budget",
    _seconds,
    default=5.0,
    allowed="a number of seconds, 0 for none",
    help="seconds that evidence may take before workers are stopped",
)
LOG_CAPTURE: Final = Option(
    "log-capture",
    _one_of(_LOG_CAPTURE),
    default="auto",
    allowed=", ".join(_LOG_CAPTURE),
    help="keep workers' output in files of the job folder, and show it unchanged (auto: off with "
    "--redirects/--tee and at a terminal)",
)
DIAG_PORT: Final[Option[int | None]] = Option(
    "diag-port",
    _port,
    default=None,
    allowed="a port number, 0 for a free one",
    help="port of the health server (default: TORCHELASTIC_HEALTH_CHECK_PORT, else a free one on loopback)",
)
DIAG_HOST: Final = Option(
    "diag-host",
    str,
    default="",
    allowed="an address",
    help="address the health server binds (default: all when a port was asked for, else loopback)",
)
OPTIONS: Final[tuple[Option[object], ...]] = cast(
    "tuple[Option[object], ...]",
    (
        HANG_DETECTION,
        DIAGNOSE_AFTER,
        JOB_HANG_INTERVAL,
        JOB_EXIT_HANG_DETECTION,
        JOB_EXIT_HANG_INTERVAL,
        STRAGGLER_INTERVAL,
        ON_HANG,
        EVIDENCE_BUDGET,
        LOG_CAPTURE,
        DIAG_PORT,
        DIAG_HOST,
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings in force; ``sources`` says where each value came from.

    Attributes:
        straggler_interval: seconds between two looks for what is slow, 0 for never, ``None`` for looking when
            steps take longer.
    """

    hang_detection: bool = True
    hang: HangSettings = field(default_factory=HangSettings)
    straggler_interval: float | None = None
    on_hang: OnHang = "auto"
    evidence_budget: float = 5.0
    log_capture: str = "auto"
    diag_port: int | None = None
    diag_host: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add Rankscope's group of flags to torchrun's parser; values stay text until ``resolve``."""
    group = parser.add_argument_group("rankscope")
    for option in OPTIONS:
        spellings = dict.fromkeys((option.flag, "--" + option.name.replace("-", "_")))
        group.add_argument(
            *spellings,
            dest=option.dest,
            metavar="X",
            default=None,
            help=_help(option).replace("%", "%%"),
        )


def _help(option: Option[object]) -> str:
    if "default" in option.help or "auto" in option.help:
        return option.help
    return f"{option.help} (default {option.default})"


def resolve(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Read every setting from flags, environment and defaults.

    Raises:
        UsageError: a value is not allowed; names the flag or variable, the value and what is allowed.
    """
    sources: dict[str, str] = {}

    def value(option: Option[T]) -> T:
        flag = cast("str | None", getattr(arguments, option.dest, None))
        text, source = (
            (flag, option.flag) if flag is not None else (environ.get(option.variable), option.variable)
        )
        if text is None or (flag is None and not text.strip()):
            sources[option.name] = "default"
            return option.default
        sources[option.name] = source
        try:
            return option.read(text.strip())
        except ValueError:
            raise UsageError(f"{source} {text!r}: {option.allowed} expected") from None

    exit_after = value(JOB_EXIT_HANG_INTERVAL)
    hang = HangSettings(
        diagnose_after=value(DIAGNOSE_AFTER),
        act_after=value(JOB_HANG_INTERVAL),
        exit_after=exit_after if value(JOB_EXIT_HANG_DETECTION) else None,
    )
    return Settings(
        hang_detection=value(HANG_DETECTION),
        hang=hang,
        straggler_interval=value(STRAGGLER_INTERVAL),
        on_hang=cast("OnHang", value(ON_HANG)),
        evidence_budget=value(EVIDENCE_BUDGET),
        log_capture=value(LOG_CAPTURE),
        diag_port=_health_port(value(DIAG_PORT), environ),
        diag_host=value(DIAG_HOST),
        sources=sources,
    )


def _health_port(chosen: int | None, environ: Mapping[str, str]) -> int | None:
    """Torch's own variable names the port too; torch logs and goes on when it is no number."""
    if chosen is not None:
        return chosen
    try:
        return _port(environ.get("TORCHELASTIC_HEALTH_CHECK_PORT", ""))
    except ValueError:
        return None
