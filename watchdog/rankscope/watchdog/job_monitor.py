"""The worker SDK, by the names of AIMaster's: what a training script may tell the agent about itself.

::

    from rankscope.watchdog import job_monitor as jm

    monitor = jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=600))
    with jm.hang_detect(1800):
        save_checkpoint()

Works from any thread, after a fork and without an agent (then it does nothing, and says so once). Only errors
of the user's own making are raised, at the call that makes them. How values travel is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankscope.watchdog.sdk.config import (
    MAX_KEYWORDS,
    MAX_STEP,
    MIN_STEP,
    Config,
    ElasticBatchConfig,
    MPIConfig,
    PyTorchConfig,
    TFConfig,
    Value,
    checked,
    step_number,
    text_of_one_line,
)
from rankscope.watchdog.sdk.published import PUBLISHED
from rankscope.watchdog.sdk.stages import hang_detect
from rankscope.watchdog.sdk.untraced import untraced

__all__ = [
    "Config",
    "ElasticBatchConfig",
    "MPIConfig",
    "Monitor",
    "PyTorchConfig",
    "Status",
    "TFConfig",
    "hang_detect",
]


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a message, or of parameters for the record.

    Attributes:
        reason: why it was not sent (yet), ``""`` when it was.
    """

    reason: str = ""

    def ok(self) -> bool:
        """Whether the message is in the agent's hands."""
        return not self.reason

    def to_string(self) -> str:
        """``OK``, or why the message was not sent."""
        return self.reason or "OK"


class Monitor:
    """Tells the agent what this rank wants. Values are the process's: of several monitors the last holds."""

    @untraced
    def __init__(self, config: Config | None = None) -> None:
        """Make the parameters of ``config`` this rank's.

        Args:
            config: e.g. ``PyTorchConfig(job_hang_interval=600)``; without parameters nothing changes.

        Raises:
            TypeError: ``config`` is none of this module's configurations.
        """
        if config is not None and not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance] - the user's
            raise TypeError(f"config={config!r}: PyTorchConfig(...) or another of this module's expected")
        if config is not None:
            _set(config.params)

    @untraced
    def set_retryable_errors(self, errors: Iterable[str]) -> Status:
        """Name texts that make a failure of this job worth a retry when the failed rank's log has them.

        What this rank has named before is replaced.

        Args:
            errors: keywords, each part of a log line.

        Returns:
            Whether the agent has them. Those that find its pipe full are sent again by later calls and steps.

        Raises:
            TypeError: ``errors`` is a string itself, or one of them is none.
            ValueError: an empty or too long one, or more than 100.
        """
        if isinstance(errors, (str, bytes)):
            raise TypeError("set_retryable_errors takes a list of strings, not one string")
        keywords = [text_of_one_line(each, "a retryable error") for each in errors]
        if not all(keyword.strip() for keyword in keywords):
            raise ValueError("an empty retryable error would be found in every log")
        if len(keywords) > MAX_KEYWORDS:
            raise ValueError(f"{len(keywords)} retryable errors: at most {MAX_KEYWORDS} expected")
        lines: list[dict[str, object]] = [
            {"keyword": keyword, "index": index, "count": len(keywords)}
            for index, keyword in enumerate(keywords)
        ]
        nothing: dict[str, object] = {"keyword": None, "index": 0, "count": 0}
        return Status(PUBLISHED.record("retryable_errors", lines or [nothing]))

    @untraced
    def reset_config(self, params: Mapping[str, Value] | Config | None = None, /, **more: Value) -> Status:
        """Change parameters of this rank while it trains; those not named stay as they are.

        Args:
            params: names and values, or a configuration.
            more: the same as keywords, which win: ``reset_config(job_hang_interval=180)``. ``None`` or
                ``"auto"`` for an interval gives it back to the launcher.

        Returns:
            Whether the agent has them for its record; what finds its pipe full is sent again by later calls
            and steps. Limits hold all the same.

        Raises:
            TypeError: an unknown name (the nearest known one is named), or a value of another type.
            ValueError: a value out of range.
        """
        given = params.params if isinstance(params, Config) else {} if params is None else params
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - the user's argument
            raise TypeError(f"reset_config({params!r}): names with values expected")
        return _set(checked({**given, **more}))

    @untraced
    def send_custom_message(self, content: str) -> Status:
        """Send a text to the agent: it is recorded and shown on the agent's console.

        Waits half a second at most, when the agent does not read.

        Args:
            content: up to 3,968 bytes of JSON, in which a character that is no ASCII takes 6 or 12.

        Returns:
            Whether the agent has it, and if not, why.

        Raises:
            TypeError: ``content`` is no string.
            ValueError: it is too long for one line of the pipe; nothing was sent.
        """
        return Status(PUBLISHED.send("message", {"content": text_of_one_line(content, "content")}))

    @untraced
    def step(self, number: int) -> None:
        """Say which step the script is at; any call is a sign of progress, whatever the number.

        Args:
            number: the script's own count.

        Raises:
            TypeError: ``number`` is no integer.
            ValueError: it has more than 64 bits.
        """
        if type(number) is not int or not MIN_STEP <= number <= MAX_STEP:
            number = step_number(number)
        PUBLISHED.step(number)


def _set(params: Mapping[str, Value]) -> Status:
    """Let what has an effect take it, and send everything for the record."""
    if "job_hang_interval" in params:
        seconds = params["job_hang_interval"]
        PUBLISHED.set_limits(interval=float(seconds) if isinstance(seconds, (int, float)) else None)
    if "enable_job_hang_detection" in params:
        PUBLISHED.set_limits(detect=bool(params["enable_job_hang_detection"]))
    if not params:
        return Status()
    return Status(PUBLISHED.record("settings", [{"values": dict(params)}]))
