"""Variables of an environment that a text shows: printed, exported, dumped whole. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ASSIGNMENT: Final = re.compile(
    r"^(?:\[[\w :.-]{1,40}\]:? ?)?(?:export )?(?P<name>[A-Z][A-Z0-9_]+)=(?P<value>[^\n]+)$", re.MULTILINE
)
_EXPORT: Final = re.compile(
    r"\b(?:export|declare -x|setenv|env)[ \t]+(?P<name>[A-Za-z_]\w*)[= ]"
    r"(?P<value>\"[^\"\n]*\"?|'[^'\n]*'?|[^\s;&|\"']+)"
)
_DUMP: Final = re.compile(
    r"\benviron\((?P<value>\{(?:[^'\"}\n]|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")*(?:\}(?=\))|[^\n]*))"
)
"""``print(os.environ)``; one that is cut goes to the end of its line."""
_PLAIN: Final = re.compile(r"-?\d{1,9}(?:\.\d+)?|(?i:true|false|none|null)|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*|")
_HARMLESS: Final = re.compile(
    r"(?:NCCL|GLOO|TORCH|PYTORCH|TORCHELASTIC|CUDA|OMP|MKL|UCX|FI|HCCL|RCCL|TP_SOCKET|GLOG)(?:_\w+)?"
    r"|(?:GROUP_|LOCAL_|ROLE_)?(?:RANK|WORLD_SIZE)|MASTER_PORT|NODE_RANK|NPROC_PER_NODE|LD_\w+|PYTHON\w*"
)
"""Variables whose values explain a hang and are nobody's secret."""


def printed(text: str) -> Iterator[tuple[int, int]]:
    """Values of ``NAME=value`` lines, as ``env`` prints them."""
    yield from _values(_ASSIGNMENT, text)


def exported(text: str) -> Iterator[tuple[int, int]]:
    """Values of exported variables, and environments that Python printed whole."""
    yield from _values(_EXPORT, text)
    for found in _DUMP.finditer(text):
        yield found.span("value")


def _values(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for found in pattern.finditer(text):
        if not _HARMLESS.fullmatch(found["name"]) and not _PLAIN.fullmatch(found["value"].strip("\"'")):
            yield found.span("value")
