"""The flight record of a rank: from torch's server in it, else from a dump that torch has written already.

Nothing is run in the rank's Python for it. What is kept is trimmed: the end of a record tells where a rank
stands, its thousands of older entries do not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.capture.server import ask_server, find_server
from rankscope.diag.discover.namespaces import beyond_root
from rankscope.diag.model import FlightRecord, ProcessFacts
from rankscope.diag.read.flight_record import parse_record

KEPT_ENTRIES: Final = 64
"""Newest operations that are kept beside all that are still open; a record holds 2,000 by default."""
DUMP_VARIABLES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Torch's names of the prefix of its dumps (newer first); the global rank follows it."""
_CANNOT_RUN: Final = frozenset("TtZX")
_MOST_BYTES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Recorded:
    """What torch itself says of a rank.

    Attributes:
        record: its flight record, ``None`` when nobody could be asked for one.
        server_answers: whether torch's server answered, ``None`` without one.
        wait_counters: calls that still wait.
    """

    record: FlightRecord | None = None
    server_answers: bool | None = None
    wait_counters: dict[str, int] = field(default_factory=dict[str, int])


def read_recorded(
    facts: ProcessFacts,
    *,
    rank: int,
    folders: Sequence[str],
    environ: Mapping[str, str] | None,
    deadline: float,
    kept_entries: int = KEPT_ENTRIES,
) -> Recorded:
    """Ask for a rank's record; a process that is stopped or has ended is not asked.

    Args:
        facts: of its process.
        rank: global rank.
        folders: where the probe's socket may lie.
        environ: its environment, ``None`` when it cannot be read.
        deadline: ``time.monotonic()`` after which nothing is waited for.
        kept_entries: newest operations that are kept.
    """
    written = _written_dump(facts, rank, environ or {}, kept_entries)
    if facts.state in _CANNOT_RUN or time.monotonic() >= deadline:
        return Recorded(written)
    address = find_server(facts.pid, folders=folders, environ=environ)
    if address is None:
        return Recorded(written)
    answer = ask_server(address, deadline=deadline)
    record = parse(answer.record, kept_entries) if answer.record else None
    return Recorded(record or written, answer.answers, answer.counters)


def parse(data: bytes, kept_entries: int = KEPT_ENTRIES) -> FlightRecord | None:
    """A dump as JSON or pickle, trimmed."""
    record, _problems = parse_record(data)
    return trimmed(record, kept_entries) if record is not None else None


def trimmed(record: FlightRecord, kept_entries: int = KEPT_ENTRIES) -> FlightRecord:
    """All open entries and the newest ``kept_entries``."""
    oldest_kept = len(record.entries) - kept_entries
    kept = tuple(
        entry for place, entry in enumerate(record.entries) if place >= oldest_kept or not entry.is_completed
    )
    if len(kept) == len(record.entries):
        return record
    return msgspec.structs.replace(record, entries=kept, is_whole=False)


def _written_dump(
    facts: ProcessFacts, rank: int, environ: Mapping[str, str], kept_entries: int
) -> FlightRecord | None:
    """A dump that this very process wrote: newer than itself, in the place that its environment names."""
    for variable in DUMP_VARIABLES:
        prefix = environ.get(variable)
        if not prefix:
            continue
        path = Path(beyond_root(facts.pid, f"{prefix}{rank}"))
        try:
            found = path.stat()
            if path.is_file() and found.st_mtime >= facts.started and found.st_size <= _MOST_BYTES:
                return parse(path.read_bytes(), kept_entries)
        except OSError:
            continue
    return None
