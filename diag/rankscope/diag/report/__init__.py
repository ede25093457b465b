"""Reports: they render a finished diagnosis and decide nothing."""

from __future__ import annotations

import msgspec

from rankscope.diag.model import Diagnosis
from rankscope.diag.report.text import render_text
from rankscope.diag.streams import json_bytes

__all__ = ["as_told", "render_json", "render_text"]


def render_json(diagnosis: Diagnosis, *, indent: int = 2) -> bytes:
    """The JSON of INTERFACES.md."""
    return msgspec.json.format(json_bytes(as_told(diagnosis)), indent=indent)


def as_told(diagnosis: Diagnosis) -> dict[str, object]:
    """What that JSON is made of: ``schema`` first, then the fields in the model's order."""
    plain: dict[str, object] = msgspec.to_builtins(diagnosis)
    return {"schema": plain.pop("schema"), **plain}
