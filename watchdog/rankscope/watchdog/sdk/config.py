"""The parameters that a script may set from inside, by AIMaster's names, and what each may be.

Decides what is allowed and nothing else. Only ``job_hang_interval`` and ``enable_job_hang_detection`` have an
effect from inside a worker; the others are for ``diag run`` to act on, and are only recorded.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import ClassVar, Final, SupportsIndex

from rankscope.watchdog.timers.wire import MAX_LINE_BYTES

Value = str | int | float | bool | None
"""What a parameter may hold; numbers of other types (numpy's) are turned into these."""

OFF: Final = -1.0
"""AIMaster's "off" for an interval."""
MAX_TEXT_BYTES: Final = MAX_LINE_BYTES - 128
"""Longest message or keyword, in bytes as JSON: one line of the pipe, less what stands around it."""
MAX_KEYWORDS: Final = 100
"""Retryable errors that one rank may name: each is a line of the agent's pipe."""
_AS_JSON: Final = "as JSON, where a character that is no ASCII takes 6 or 12"
_MAX_VALUE_BYTES: Final = 500
"""Longest text of a parameter, as JSON: all of them together fit into one line."""
MIN_STEP: Final = -(2**63)
MAX_STEP: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 200


def seconds_or_off(value: object, name: str) -> float:
    """A limit in seconds, -1 for off.

    Raises:
        TypeError: ``value`` is no number.
        ValueError: it is neither a positive finite number nor -1.
    """
    number = _number(value, name)
    if number != OFF and not 0 < number < math.inf:
        raise ValueError(f"{name}={_shown(value)}: a positive number of seconds expected, or -1 for off")
    return number


def step_number(value: object) -> int:
    """A step's number.

    Raises:
        TypeError: ``value`` is no integer.
        ValueError: it has more than 64 bits.
    """
    if type(value) is int:
        number = value  # the usual case; the protocol's check below takes 5 us
    elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
    else:
        raise TypeError(f"step({_shown(value)}): an integer expected")
    if not MIN_STEP <= number <= MAX_STEP:
        raise ValueError(f"step({_shown(value)}): more than 64 bits")
    return number


def text_of_one_line(value: object, name: str) -> str:
    """A text that fits into one line of the pipe.

    Raises:
        TypeError: ``value`` is no string.
        ValueError: it is longer than ``MAX_TEXT_BYTES`` as JSON.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: a string expected, not {type(value).__name__}")
    # A character is at least one byte: what is far too long is not encoded first.
    size = len(value) if len(value) > MAX_TEXT_BYTES else _json_bytes(value)
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"{name} of {size} bytes: at most {MAX_TEXT_BYTES} bytes can be sent ({_AS_JSON})")
    return value


def _shown(value: object) -> str:
    """``value`` for a message: bounded, also where Python refuses to write a number out."""
    try:
        text = repr(value)
    except ValueError:  # more than sys.get_int_max_str_digits()
        return f"{type(value).__name__} of very many digits"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _json_bytes(text: str) -> int:
    return len(json.dumps(text)) - 2


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={_shown(value)}: a number expected")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}={_shown(value)}: too large") from None


def _interval(value: object, name: str) -> Value:
    if value is None or value == "auto":
        return None
    seconds = seconds_or_off(value, name)
    return int(seconds) if seconds.is_integer() else seconds


def _boolean(value: object, name: str) -> Value:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError(f"{name}={_shown(value)}: True or False expected")
    return value


def _count(value: object, name: str) -> Value:
    number = _number(value, name)
    if not math.isfinite(number) or (number < 0 and number != OFF):
        raise ValueError(f"{name}={_shown(value)}: a number that is not negative expected, or -1 for off")
    return int(number) if isinstance(value, Integral) or number.is_integer() else number


def _text(value: object, name: str) -> Value:
    if not isinstance(value, str):
        raise TypeError(f"{name}={_shown(value)}: a string expected")
    if _json_bytes(value) > _MAX_VALUE_BYTES:
        raise ValueError(f"{name}: more than {_MAX_VALUE_BYTES} bytes ({_AS_JSON})")
    return value


ACTED_ON: Final = frozenset({"job_hang_interval", "enable_job_hang_detection"})
"""Parameters that have an effect when a worker sets them."""
PARAMETERS: Final[Mapping[str, Callable[[object, str], Value]]] = MappingProxyType(
    {
        "job_execution_mode": _text,
        "critical_roles": _text,
        "enable_job_restart": _boolean,
        "max_num_of_job_restart": _count,
        "job_restart_timeout": _interval,
        "enable_job_hang_detection": _boolean,
        "job_hang_interval": _interval,
        "enable_c4d_hang_detection": _boolean,
        "c4d_common_envs": _text,
        "c4d_log_level": _text,
        "enable_job_exit_hang_detection": _boolean,
        "job_exit_hang_interval": _interval,
        "fault_tolerant_policy": _text,
        "max_num_of_same_error": _count,
        "max_tolerated_failure_rate": _count,
        "enable_local_detection": _boolean,
        "enable_perftracker": _boolean,
    }
)
"""All names (FAULT_TOLERANCE.md, "Settings": AIMaster's flags with underscores), each with its check."""


def checked(params: Mapping[str, object]) -> dict[str, Value]:
    """The parameters in the form in which they are kept and sent.

    Raises:
        TypeError: a name that does not exist (the nearest known one is named), or a value of another type.
        ValueError: a value out of range.
    """
    return {name: _check_of(name)(value, name) for name, value in params.items()}


def _check_of(name: object) -> Callable[[object, str], Value]:
    if isinstance(name, str) and name in PARAMETERS:
        return PARAMETERS[name]
    # Only now: a mistake is rare, and difflib takes milliseconds to import.
    import difflib

    nearest = difflib.get_close_matches(str(name), PARAMETERS, n=1, cutoff=0.0)[0]
    raise TypeError(f"no parameter {name!r}; did you mean {nearest!r}?")


class Config:
    """Parameters of a job, checked when it is made. One class a framework, as in AIMaster; all do the same.

    Attributes:
        framework: AIMaster's name of the framework.
        params: what was given, checked and in plain types.
    """

    framework: ClassVar[str] = ""

    def __init__(self, **params: Value) -> None:
        """Check the parameters.

        Args:
            params: any of the names in ``docs/reference/sdk.md``; none for the launcher's own values.

        Raises:
            TypeError: an unknown name, or a value of another type.
            ValueError: a value out of range.
        """
        self.params: Mapping[str, Value] = MappingProxyType(checked(params))

    def __getstate__(self) -> dict[str, object]:
        """The view of the parameters can be neither copied nor pickled."""
        return {**vars(self), "params": dict(self.params)}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        vars(self).update(state)
        self.params = MappingProxyType(dict(self.params))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={_shown(value)}" for name, value in self.params.items())
        return f"{type(self).__name__}({given})"


class PyTorchConfig(Config):
    """For a PyTorch job."""

    framework = "PyTorch"


class MPIConfig(Config):
    """For a job whose ranks ``mpirun`` starts."""

    framework = "MPI"


class TFConfig(Config):
    """For a TensorFlow job."""

    framework = "TensorFlow"


class ElasticBatchConfig(Config):
    """For a batch job of independent workers."""

    framework = "ElasticBatch"
