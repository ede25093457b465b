"""Stacks in speedscope's own file format. It decides nothing.

The format: ``src/lib/file-format-spec.ts`` of https://github.com/jlfwong/speedscope. One profile a kind of
thread: those that are compared, then all others. A stack is a sample, its weight the number of threads that
show it; frames are shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from rankscope.diag.merge.groups import split_stacks
from rankscope.diag.model import Diagnosis, StackGroup
from rankscope.diag.report.text import inert

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::(?P<line>[0-9]{1,9}))?\)", re.DOTALL)


def speedscope_json(diagnosis: Diagnosis, *, everything: bool = False) -> bytes:
    """A file for speedscope.

    Args:
        diagnosis: whose stacks.
        everything: a second profile of the threads that are not compared.
    """
    compared, others = split_stacks(diagnosis.stacks)
    frames: dict[str, int] = {}
    profiles = [_profile("ranks", compared, frames)]
    if everything and others:
        profiles.append(_profile("other threads", others, frames))
    return msgspec.json.encode(
        {
            "$schema": SCHEMA,
            "exporter": "rankscope",
            "name": inert(f"{diagnosis.job} {diagnosis.time}".strip()),
            "activeProfileIndex": 0,
            "shared": {"frames": [_frame(frame) for frame in frames]},
            "profiles": profiles,
        }
    )


def _profile(name: str, groups: Sequence[StackGroup], frames: dict[str, int]) -> dict[str, object]:
    samples = [[frames.setdefault(frame, len(frames)) for frame in reversed(group.stack)] for group in groups]
    weights = [group.count for group in groups]
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _frame(shown: str) -> dict[str, object]:
    match = _FRAME.fullmatch(shown)
    if match is None:
        return {"name": inert(shown) or "?"}
    frame: dict[str, object] = {"name": inert(match["function"]), "file": inert(match["file"])}
    if match["line"]:
        frame["line"] = int(match["line"])
    return frame
