"""Torch's error files, and the variable by which torch's flight recorder is sized. It knows no job."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

logger = logging.getLogger(__name__)
_RECORD_BUFFER: Final = "TORCH_FR_BUFFER_SIZE"
_OLD_RECORD_BUFFER: Final = "TORCH_NCCL_TRACE_BUFFER_SIZE"
_RECORD_ENTRIES: Final = "2000"
"""torch's own default on gloo; older NCCL builds have none unless asked (INTERFACES.md, "Environment")."""


def record_buffer(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes the flight record available in the workers' torch; nothing that the user has set.

    A torch that knows the new name prints a warning for the old one, so only one of them is set.
    """
    from torch._C import _distributed_c10d as c10d

    name = _RECORD_BUFFER if hasattr(c10d, "_dump_fr_trace") else _OLD_RECORD_BUFFER
    taken = _RECORD_BUFFER in environ or _OLD_RECORD_BUFFER in environ
    return {} if taken else {name: _RECORD_ENTRIES}


def error_message(path: str) -> str:
    """The message of an error file, its last line; ``""`` when there is none."""
    try:
        content = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""
    message = content.get("message")
    if isinstance(message, dict):
        message = cast("dict[str, object]", message).get("message")
    lines = str(message or "").strip().splitlines()
    return lines[-1] if lines else ""


def write_error(path: str, message: str) -> None:
    """Write an error file unless the worker wrote one: it becomes the printed traceback."""
    if not path or Path(path).exists():
        return
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    try:
        Path(path).write_bytes(msgspec.json.encode({"message": {"message": message, "extraInfo": extra}}))
    except OSError:
        logger.info("no error file at %s", path)
