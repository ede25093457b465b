"""py-spy as a backend: its command, and what its output gives. It is run and judged elsewhere."""

from __future__ import annotations

from rankscope.diag.capture.tool import find_tool
from rankscope.diag.model import ThreadStack
from rankscope.diag.read.pyspy import parse_pyspy_json


def find_pyspy() -> str | None:
    """Path of py-spy: beside this Python, else on ``PATH``."""
    return find_tool("py-spy")


def pyspy_command(path: str, flags: tuple[str, ...], pid: int) -> list[str]:
    """The command line of one dump."""
    return [path, *flags, "--pid", str(pid)]


def read_pyspy(output: bytes, *, pid: int) -> tuple[tuple[ThreadStack, ...], str]:
    """The threads of a dump, and why there are none."""
    read = parse_pyspy_json(output, pid=pid)
    return read.threads, "; ".join(read.problems) or "py-spy saw no Python thread"
