"""Long names of C++ frames, short enough to be read: without template arguments, then without parameters.

For those who look; what is stored, and what ``--json`` and ``--full`` say, is whole. It reads text only.
"""

from __future__ import annotations

import functools
import re
from typing import Final

LONGEST: Final = 120
"""Characters of a function's name that are shown as they are: a line and a half."""
_LEFT_OUT: Final = "..."
_OPERATOR: Final = re.compile(r"operator\s*(?:<<=|>>=|<=>|<<|>>|<=|>=|->|<|>|\(\))")
_PAIRS: Final = {"<": ">", "(": ")"}


@functools.lru_cache(maxsize=65_536)
def short_frame(frame: str) -> str:
    """``function (file:line)`` with a long function shortened; the place stays."""
    function, gap, place = frame.rpartition(" (")
    if not gap or not place.endswith(")") or "::" in place:
        function, gap, place = frame, "", ""
    return f"{_short(function)}{gap}{place}"


def _short(function: str) -> str:
    for opening in _PAIRS:
        if len(function) <= LONGEST:
            return function
        function = _without(function, opening)
    if len(function) <= LONGEST:
        return function
    half = (LONGEST - len(_LEFT_OUT)) // 2
    return f"{function[:half]}{_LEFT_OUT}{function[-half:]}"


def _without(function: str, opening: str) -> str:
    """The name with ``...`` in the outermost pairs of brackets; a ``<`` or ``>`` of an operator is none."""
    closing = _PAIRS[opening]
    parts: list[str] = []
    depth = begin = 0
    for index, char in enumerate(function):
        if char not in (opening, closing) or _is_operator(function, index):
            continue
        if char == opening:
            if depth == 0:
                parts.append(function[begin : index + 1])
                begin = index + 1
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0:
                inside = function[begin:index]
                parts.append(_LEFT_OUT if len(inside) > len(_LEFT_OUT) and not _is_name(inside) else inside)
                begin = index
    if depth:  # not closed: a tool cut it
        return "".join(parts) + _LEFT_OUT
    return "".join(parts) + function[begin:]


def _is_operator(function: str, index: int) -> bool:
    """Of ``operator<<``, or of the arrow of ``operator->`` and of a lambda's return type."""
    if function[index] == ">" and function[index - 1 : index] == "-":
        return True
    begin = function.rfind("operator", 0, index)
    found = _OPERATOR.match(function, begin) if begin >= 0 else None
    return found is not None and index < found.end()


def _is_name(inside: str) -> bool:
    """``(anonymous namespace)`` and ``<lambda>`` name something."""
    return inside in ("anonymous namespace", "lambda")
