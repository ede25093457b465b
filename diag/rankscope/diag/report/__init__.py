"""Reports: they render a finished diagnosis and decide nothing."""

from __future__ import annotations

import msgspec

from rankscope.diag.model import Diagnosis
from rankscope.diag.report.text import render_text

__all__ = ["render_json", "render_text"]


def render_json(diagnosis: Diagnosis, *, indent: int = 2) -> bytes:
    """The JSON of INTERFACES.md: ``schema`` first, then the fields in the model's order."""
    plain: dict[str, object] = msgspec.to_builtins(diagnosis)
    ordered = {"schema": plain.pop("schema"), **plain}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=indent)
