"""Ends of workers and what was read of them, for tests of failures."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankscope.agent.failures import EndWords, Failure, WorkerEnd, choose_root, read_ends
from rankscope.agent.failures.telling import tell

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA: Final = Path(__file__).parent / "data" / "failures"
T0: Final = 1_796_000_000.0
"""Some moment in 2026."""
CLOSED: Final = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:41189"


class KnownError(NamedTuple):
    """An entry of ``errors.toml``."""

    what: str
    same: tuple[str, ...]
    exit_code: int
    retryable: bool
    aftermath: bool


def known_errors() -> tuple[KnownError, ...]:
    """The table of real errors."""
    read = tomllib.loads((DATA / "errors.toml").read_text("utf-8"))
    return tuple(
        KnownError(
            entry["what"],
            tuple(entry["same"]),
            entry.get("exit_code", 1),
            entry["retryable"],
            entry["aftermath"],
        )
        for entry in read["error"]
    )


def an_end(rank: int, *, after: float = 0.0, code: int | None = 1, **fields: Any) -> WorkerEnd:
    """An end ``after`` seconds."""
    given: dict[str, Any] = {"local_rank": rank, "node": "node-a", "at": T0 + after, **fields}
    return WorkerEnd(rank=rank, exit_code=code, **given)


def ended(rank: int, said: str = "", *, after: float = 0.0, code: int | None = 1, **fields: Any) -> EndWords:
    """What is known of such an end when its probe said this."""
    return tell(an_end(rank, after=after, code=code, said=said, **fields), None, None)


def root_failure(ends: Iterable[WorkerEnd], **given: Any) -> Failure | None:
    """The root of these ends, read from what they left behind."""
    return choose_root(read_ends(tuple(ends), **given))
