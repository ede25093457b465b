"""Reads the sequence numbers out of torch's flight recorder (FR) in this process.

The status part of a dump costs microseconds, but knows groups by a number local to the process. Which group
a number is, the entries tell, and whether a collective that the status calls open is: gloo's threads report
completions out of order and the last to report wins, so that a group stays at "18 enqueued, 14 completed"
after all 18 are done (measured, two busy cores: up to 30 % of the looks at an idle rank). So entries are
dumped, without stacks, when an unknown number appears or an open collective has not moved since the last
look, and never for more than a thousandth of the time. Knows nothing of torch's registry of groups.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

_LEARNING_SHARE: Final = 0.001
"""Part of the time that dumps with entries may take: a full record takes 20 ms with the GIL held."""

_BAD_PICKLE: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)
"""What an unpickler raises on bytes that are no pickle."""

Seq = tuple[int, int]
"""Last enqueued and last completed collective, -1 for none (FR's ``last_enqueued_collective``)."""


class Recorder:
    """One flight recorder of the process: CUDA builds have one for NCCL and one for the rest."""

    def __init__(
        self,
        dump: Callable[..., object],
        *,
        backends: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap a dump function of torch.

        Args:
            dump: takes FR's three flags and returns a pickle.
            backends: those whose collectives are all recorded here, so that no record means no collective.
            clock: seconds.
        """
        self.backends = backends
        self._dump = dump
        self._clock = clock
        self._names: dict[int, str] = {}
        self._stale: set[int] = set()
        self._tried: dict[int, Seq] = {}
        self._seen: dict[int, Seq] = {}
        self._completed: dict[int, int] = {}
        self._learn_after = 0.0

    def forget(self, name: str) -> None:
        """A group of this name is gone; its numbers stay in the record but mean nobody any more."""
        for number in [number for number, known in self._names.items() if known == name]:
            del self._names[number]
            self._completed.pop(number, None)
            self._stale.add(number)

    def read(self) -> tuple[dict[str, Seq], bool]:
        """Sequence numbers by group name, and whether every number in the record has its name."""
        status = read_status(load_plain(self._dump(**_flags(entries=False))))
        unknown = {n: seq for n, seq in status.items() if n not in self._names and n not in self._stale}
        # A number whose entries have left the ring already is asked for again only once it moved.
        if any(self._tried.get(number) != seq for number, seq in unknown.items()) or self._doubtful(status):
            self._learn(unknown)
        self._seen = status
        # By number: of two groups of one name the later one is the living one.
        found = {
            self._names[number]: self._corrected(number, status[number])
            for number in sorted(status)
            if self._names.get(number)
        }
        return found, all(self._names.get(number) for number in status if number not in self._stale)

    def _doubtful(self, status: Mapping[int, Seq]) -> bool:
        """Whether some collective has been open, and its group unmoved, for one look at least."""
        return any(
            self._seen.get(number) == seq and seq[1] < seq[0] and self._corrected(number, seq)[1] < seq[0]
            for number, seq in status.items()
            if self._names.get(number)
        )

    def _corrected(self, number: int, seq: Seq) -> Seq:
        """The status, or what the entries have told where that is more."""
        enqueued, completed = seq
        known = self._completed.get(number, -1)
        return enqueued, known if completed < known <= enqueued else completed

    def _learn(self, unknown: Mapping[int, Seq]) -> None:
        began = self._clock()
        if began < self._learn_after:
            return
        dump = load_plain(self._dump(**_flags(entries=True)))
        names = read_names(dump)
        self._names.update({number: names[number] for number in unknown if number in names})
        self._completed.update(read_completed(dump))
        self._tried = dict(unknown)
        ended = self._clock()
        self._learn_after = ended + (ended - began) / _LEARNING_SHARE


def _flags(*, entries: bool) -> dict[str, bool]:
    return {"includeCollectives": entries, "includeStackTraces": False, "onlyActive": False}


class _PlainUnpickler(pickle.Unpickler):
    """Admits containers, strings and numbers only: reading a dump must not run what is in it."""

    def find_class(self, module_name: str, global_name: str) -> object:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} in a flight recorder dump")


def load_plain(raw: object) -> dict[object, object]:
    """Decode one dump; empty when it is no pickle of a dict of plain values."""
    if not isinstance(raw, bytes):
        return {}
    try:
        loaded: object = _PlainUnpickler(io.BytesIO(raw)).load()
    except _BAD_PICKLE:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def read_status(dump: Mapping[object, object]) -> dict[int, Seq]:
    """Group number to sequence numbers, from ``pg_status``; what is not understood is left out."""
    status = dump.get("pg_status")
    found: dict[int, Seq] = {}
    for number, value in status.items() if isinstance(status, dict) else ():
        try:
            found[int(number)] = (
                int(value["last_enqueued_collective"]),
                int(value["last_completed_collective"]),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found


def read_names(dump: Mapping[object, object]) -> dict[int, str]:
    """Group number to torch's group name, as far as entries tell; "" under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    entries = dump.get("entries")
    found: dict[int, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        try:
            found[int(entry["pg_id"])] = str(entry["process_group"][0])
        except (IndexError, KeyError, TypeError, ValueError):
            continue
    return found


def read_completed(dump: Mapping[object, object]) -> dict[int, int]:
    """Group number to the last collective before the first that is not retired, as far as entries tell."""
    entries = dump.get("entries")
    last: dict[int, int] = {}
    first_open: dict[int, int] = {}
    for entry in entries if isinstance(entries, list) else ():
        try:
            number, seq, retired = int(entry["pg_id"]), int(entry["collective_seq_id"]), entry["retired"]
            if entry.get("is_p2p"):
                continue
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
        last[number] = max(seq, last.get(number, -1))
        if not retired:
            first_open[number] = min(seq, first_open.get(number, seq))
    return {number: first_open.get(number, seq + 1) - 1 for number, seq in last.items()}


def find_recorders() -> list[Recorder]:
    """The recorders that the loaded torch has; none where it is built without, or they are switched off."""
    size = os.environ.get("TORCH_FR_BUFFER_SIZE", os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE"))
    if size == "0":
        return []
    module = sys.modules.get("torch._C._distributed_c10d")
    for_nccl = getattr(module, "_dump_nccl_trace", None)
    generic = getattr(module, "_dump_fr_trace", None)
    found: list[Recorder] = []
    if for_nccl is not None:
        # Alone it is an older torch's, in which recording is off unless it was asked for.
        is_on = generic is not None or size is not None
        found.append(Recorder(for_nccl, backends=frozenset({"nccl"} if is_on else ())))
    if generic is not None:
        found.append(Recorder(generic, backends=frozenset({"gloo"})))
    return found
