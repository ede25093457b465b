"""Whether this host lets a job be diagnosed: what ``diag doctor`` looks at, a module a subject.

Each subject gathers facts in one function and judges them in others: facts in, findings out, so that a host
that is at hand nowhere (Yama, hidepid, a full share) can still be judged in a test.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the answer.

    Attributes:
        what: what was looked at.
        status: ``fail``: something that diagnosis needs is missing; ``warn``: it does less, or will soon.
        value: what was found.
        remedy: what to do about it, lines; ``""`` for nothing.
        known: False when it could not be found out.
        needed: whether diagnosis needs it.
    """

    what: str
    status: Status
    value: str
    remedy: str = ""
    known: bool = True
    needed: bool = False


def unknown(what: str, why: str, *, remedy: str = "", needed: bool = False) -> Finding:
    """A finding that could not be made."""
    return Finding(what, "warn", f"could not find out: {why}", remedy, known=False, needed=needed)
