"""A job's verdict as every agent gets it: the diagnosis, of bounded size. Pure.

Who merged the looks keeps the whole one. What goes first is what a person reads last: folded stacks, then the
rows of ranks that are no culprits, then evidence.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rankscope.diag.model import Diagnosis

MOST_BYTES: Final = 64 << 10
"""2,000 agents read it: 128 MB through the store at most."""
_EVIDENCE: Final = 20


def write_verdict(diagnosis: Diagnosis, most_bytes: int = MOST_BYTES) -> bytes:
    """The verdict as it stands in the store."""
    for lighter in (diagnosis, _without_stacks(diagnosis), _with_culprits_alone(diagnosis)):
        data = msgspec.json.encode(lighter)
        if len(data) <= most_bytes:
            return data
    return msgspec.json.encode(_briefest(diagnosis))


def read_verdict(data: bytes) -> Diagnosis | None:
    """What stands in the store, ``None`` when it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Diagnosis)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _without_stacks(diagnosis: Diagnosis) -> Diagnosis:
    return msgspec.structs.replace(diagnosis, stacks=(), unknown_frames=())


def _with_culprits_alone(diagnosis: Diagnosis) -> Diagnosis:
    ranks = tuple(one for one in diagnosis.ranks if one.role == "culprit")[:_EVIDENCE]
    return msgspec.structs.replace(
        _without_stacks(diagnosis),
        ranks=ranks,
        evidence=diagnosis.evidence[:_EVIDENCE],
        unobserved=diagnosis.unobserved[:_EVIDENCE],
    )


def _briefest(diagnosis: Diagnosis) -> Diagnosis:
    return msgspec.structs.replace(_with_culprits_alone(diagnosis), ranks=(), evidence=(), unobserved=())
