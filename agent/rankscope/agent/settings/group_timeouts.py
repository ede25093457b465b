"""Is a process group's own timeout longer than the hang interval? AIMaster's advice, as one line. Pure.

A collective that hangs is aborted by its process group after the group's timeout. That ends the workers
before anything could be decided, where the timeout is not longer than ``--job-hang-interval``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

ENOUGH: Final = 150.0
"""Seconds by which the timeout should exceed the interval, at least: evidence, decision, restart."""
ADVISED: Final = 200.0
NCCL: Final = 600.0
"""torch's ``default_pg_nccl_timeout``."""
GLOO: Final = 1800.0
"""torch's ``default_pg_timeout``, for all other backends."""
_FLAGS: Final = {
    "--ddp-timeout": 1.0,
    "--distributed-timeout-minutes": 60.0,
    "--comm.train-timeout-seconds": 1.0,
}
"""Flags of training scripts that set it, with their unit in seconds: transformers, Megatron, torchtitan."""
_VARIABLES: Final = {"DEEPSPEED_TIMEOUT": 60.0}
_ABORTS: Final = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
"""0: NCCL's watchdog aborts nothing (torch's name and its older one)."""


def warning(
    interval: float,
    source: str,
    script_arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    has_gpu: bool,
) -> str | None:
    """One line when a known timeout is too short for the interval, else ``None``.

    Args:
        interval: ``--job-hang-interval`` in seconds.
        source: where it came from.
        script_arguments: those of the training script.
        environ: the environment that the workers get.
        has_gpu: whether NCCL may be in use.
    """
    known = given_timeout(script_arguments, environ)
    if known is None and has_gpu and any(environ.get(name) == "0" for name in _ABORTS):
        return None
    timeout, whose = known or ((NCCL, "NCCL's default") if has_gpu else (GLOO, "gloo's default"))
    if timeout >= interval + ENOUGH:
        return None
    return (
        f"a process group gives up after {timeout:g} s ({whose}), which should be 150-200 s more than the "
        f"hang interval of {interval:g} s ({source}): init_process_group(timeout=timedelta(seconds="
        f"{interval + ADVISED:g}))"
    )


def given_timeout(script_arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[float, str] | None:
    """The timeout in seconds that the user set in a way that is known, and how."""
    for position, word in enumerate(script_arguments):
        name, equals, text = word.partition("=")
        unit = _FLAGS.get(name.replace("_", "-"))
        if unit is None:
            continue
        after = script_arguments[position + 1 : position + 2]
        seconds = _number(text if equals else "".join(after))
        if seconds is not None:
            return seconds * unit, name
    for name, unit in _VARIABLES.items():
        seconds = _number(environ.get(name, ""))
        if seconds is not None:
            return seconds * unit, name
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
