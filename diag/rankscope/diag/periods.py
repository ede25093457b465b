"""Times and sizes as a person types them (``2d``, ``2026-11-29``, ``10G``), and as one reads them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PERIOD: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_UNIT_SHOWN_FROM: Final = 2
"""Of the smaller unit: ``119m`` says more than ``1h``."""


def period_seconds(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``36h``, ``2d``, ``1w``.

    Raises:
        ValueError: it is none of these.
    """
    found = _PERIOD.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r}: a time as in 10m, 36h, 2d or 1w expected")
    return float(found[1]) * _SECONDS[found[2]]


def since_time(text: str, now: float) -> float:
    """The unix time that ``2d`` (ago), ``2026-11-29`` or ``2026-11-29T16:40`` (UTC) means.

    Raises:
        ValueError: it is none of these.
    """
    if _PERIOD.fullmatch(text.strip()):
        return now - period_seconds(text)
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r}: a time as in 36h or 2d, or a date as in 2026-11-29, expected") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def size_bytes(text: str) -> int:
    """Bytes of ``500M``, ``10G``, ``1.5TiB``; units are those of 1024.

    Raises:
        ValueError: it is none of these.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r}: a size as in 500M or 10G expected")
    return int(float(found[1]) * _STEP ** " kmgt".index(found[2].lower() or " "))


def size_text(size: float) -> str:
    """``312 B``, ``4.2 KiB``, ``17 MiB``."""
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            digits = 1 if size < 10 and unit != "B" else 0  # noqa: PLR2004 - digits
            return f"{size:.{digits}f} {unit}"
        size /= _STEP
    raise AssertionError


def age_text(seconds: float) -> str:
    """``45s``, ``12m``, ``30h``, ``12d``: as much as a column can say."""
    for name, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= _UNIT_SHOWN_FROM * length:
            return f"{seconds // length:.0f}{name}"
    return f"{seconds:.0f}s"
