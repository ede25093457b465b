"""Makes flight records as torch writes them with NCCL: for measurements, tests and the page on torchfrtrace.

No GPU is needed for the *form*: which counter rises when, what a coalesced group leaves in the ring, and what
the status of a group counts are read from torch 2.13 (``FlightRecorderDetail.hpp``,
``ProcessGroupNCCL.cpp``). Nothing here was compared with a dump of a real GPU yet. It judges nothing.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

State = Literal["completed", "started", "scheduled"]

START_NS: Final = 1_795_968_338_000_000_000
_MS: Final = 1_000_000
_C10D: Final = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
_TRAINER: Final = "/workspace/third_party/framework/src/framework/training/trainer.py"
_OUTER: Final = ("forward_backward", "run_schedule", "train", "pretrain", "main")
_SHORT: Final = 32  # characters
_LOGGER: Final = "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: torch's name of it, what its user called it, its global ranks."""

    name: str
    description: str
    members: tuple[int, ...]


@dataclass(slots=True)
class _Counters:
    """What one rank counts of one group."""

    pg_id: int
    collective: int = 0
    p2p: int = 0
    op: int = 0
    enqueued: int = -1
    completed: int = -1


@dataclass(slots=True)
class Recorder:
    """The flight recorder of one rank.

    Attributes:
        rank: its global rank.
        ring: entries that are kept.
        step_ns: how much later than the one before each entry is created.
        depth: further frames of each stack, of the trainer that calls the step.
    """

    rank: int
    ring: int = 2000
    step_ns: int = _MS
    depth: int = 0
    _groups: dict[Group, _Counters] = field(default_factory=dict[Group, _Counters])
    _entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _recorded: int = 0

    def call(
        self,
        group: Group,
        op: str = "all_reduce",
        *,
        state: State = "completed",
        sizes: Sequence[Sequence[int]] = ((64,),),
        outputs: Sequence[Sequence[int]] | None = None,
        dtype: str = "Float",
        line: int = 11,
        at_ns: int | None = None,
    ) -> None:
        """One collective; ``outputs`` are the sizes of its outputs where they differ from the inputs'."""
        counters = self._counters(group)
        counters.collective += 1
        counters.op += 1
        self._work(counters, counters.collective, state)
        self._record(
            group, f"nccl:{op}", state, sizes=sizes, outputs=outputs, dtype=dtype, line=line, at_ns=at_ns
        )

    def calls(self, group: Group, count: int, op: str = "all_reduce", *, line: int = 11) -> None:
        """That many collectives that ended."""
        for _ in range(count):
            self.call(group, op, line=line)

    def coalesced(
        self,
        group: Group,
        ops: Sequence[str],
        *,
        state: State = "completed",
        as_op: str = "",
        is_closed: bool = True,
    ) -> None:
        """Collectives between ``_start_coalescing`` and ``_end_coalescing``: one number, a closing entry.

        Only the closing entry has a state; torch writes the others since record version 2.7. ``as_op`` is
        what the group stands for (``ALLGATHER``), if not for itself; one that is not closed is not launched.
        """
        counters = self._counters(group)
        counters.collective += 1
        for op in ops:
            counters.op += 1
            self._record(group, f"nccl:{op}", None, line=21)
        if not is_closed:
            return
        self._work(counters, counters.collective, state)
        self._record(group, f"nccl:{as_op}_coalesced" if as_op else "nccl:coalesced", state, sizes=())

    def peer(
        self, group: Group, op: Literal["send", "recv"], peer: int, *, state: State = "completed"
    ) -> None:
        """A send or receive of its own; ``peer`` is the global rank."""
        counters = self._counters(group)
        counters.p2p += 1
        counters.op += 1
        self._work(counters, counters.p2p, state)
        self._record(group, self._p2p_name(group, op, peer), state, is_p2p=True, line=31)

    def batch(
        self, group: Group, *calls: tuple[Literal["send", "recv"], int], state: State = "completed"
    ) -> None:
        """``batch_isend_irecv``: entries without a state, then one with it that calls itself a collective."""
        counters = self._counters(group)
        counters.p2p += 1
        for op, peer in calls:
            counters.op += 1
            self._record(group, self._p2p_name(group, op, peer), None, is_p2p=True, line=41)
        self._work(counters, counters.p2p, state)
        self._record(group, "nccl:coalesced", state, sizes=())

    def know(self, group: Group) -> None:
        """A group whose communicator was made, and of which nothing was called yet."""
        self._counters(group)

    def document(self, *, version: str = "2.10", for_json: bool = False) -> dict[str, Any]:
        """The whole record, as ``torch.distributed`` pickles it or, ``for_json``, writes it as JSON."""
        entries = [dict(entry) for entry in self._entries]
        numbers = {str(one.pg_id): _status(one) for one in self._groups.values() if one.op}
        status: dict[str, dict[str, Any]] = dict(numbers)
        if for_json:
            status = {
                key: {name: str(number) for name, number in one.items()} for key, one in numbers.items()
            }
            for entry in entries:
                del entry["frames"]
                for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                    entry[name] = entry[name] or 0
        return {
            "version": version,
            "comm_lib_version": "2.27.5",
            "pg_config": {
                group.name: {
                    "name": group.name,
                    "desc": group.description,
                    "ranks": f"[{', '.join(map(str, group.members))}]",
                }
                for group in self._groups
            },
            "pg_status": status,
            "entries": entries,
        }

    def swap_last(self) -> None:
        """Two threads that counted in one order and recorded in the other."""
        last, before = self._entries[-1], self._entries[-2]
        last["record_id"], before["record_id"] = before["record_id"], last["record_id"]
        self._entries[-2:] = [last, before]

    def pickled(self, *, version: str = "2.10") -> bytes:
        """It as a pickle."""
        return pickle.dumps(self.document(version=version), protocol=2)

    def write(self, folder: Path, *, version: str = "2.10", prefix: str = "rank") -> None:
        """Write it as torch names its dumps: the prefix and the rank."""
        (folder / f"{prefix}{self.rank}").write_bytes(self.pickled(version=version))

    def json(self) -> bytes:
        """It as JSON."""
        return json.dumps(self.document(for_json=True)).encode()

    def _counters(self, group: Group) -> _Counters:
        return self._groups.setdefault(group, _Counters(len(self._groups)))

    def _work(self, counters: _Counters, number: int, state: State) -> None:
        """The status knows one number for collectives and sends: that of the last work, whichever it was."""
        counters.enqueued = number
        if state == "completed":
            counters.completed = number

    def _p2p_name(self, group: Group, op: str, peer: int) -> str:
        own, other = group.members.index(self.rank), group.members.index(peer)
        return f"nccl:{op} {own}{'->' if op == 'send' else '<-'}{other}"

    def _record(
        self,
        group: Group,
        name: str,
        state: State | None,
        *,
        sizes: Sequence[Sequence[int]] = ((64,),),
        outputs: Sequence[Sequence[int]] | None = None,
        dtype: str = "Float",
        is_p2p: bool = False,
        line: int = 11,
        at_ns: int | None = None,
    ) -> None:
        counters = self._groups[group]
        created = START_NS + self._recorded * self.step_ns if at_ns is None else START_NS + at_ns
        ins = [list(one) for one in sizes]
        outs = [list(one) for one in (sizes if outputs is None else outputs)]
        self._entries.append(
            {
                "frames": self._stack(name, line),
                "record_id": self._recorded,
                "pg_id": counters.pg_id,
                "process_group": (group.name, group.description),
                "thread_name": "pt_main_thread",
                "thread_id": "140560732486528",
                "collective_seq_id": counters.collective,
                "p2p_seq_id": counters.p2p,
                "op_id": counters.op,
                "profiling_name": name,
                "time_created_ns": created,
                "input_sizes": ins,
                "input_dtypes": [dtype] * len(ins),
                "output_sizes": outs,
                "output_dtypes": [dtype] * len(outs),
                "state": state or "scheduled",
                # Only TORCH_NCCL_ENABLE_TIMING makes the event that tells of a start.
                "time_discovered_started_ns": created + _MS // 2 if state == "started" else None,
                "time_discovered_completed_ns": created + _MS if state == "completed" else None,
                "retired": state == "completed",
                "timeout_ms": 600_000,
                "is_p2p": is_p2p,
            }
        )
        self._recorded += 1
        del self._entries[: -self.ring]

    def _stack(self, name: str, line: int) -> list[dict[str, Any]]:
        op = name.partition(":")[2].partition(" ")[0]
        calls = [(op, _C10D, 3245), ("wrapper", _LOGGER, 83), ("train_step", "/workspace/train.py", line)]
        calls += [(_OUTER[at % len(_OUTER)], _TRAINER, 40 + at) for at in range(self.depth)]
        calls.append(("<module>", "/workspace/train.py", 90))
        # Torch pickles each frame anew, and long names of files with it (measured): nothing is shared.
        return [
            {"name": name, "filename": _own(file) if len(file) > _SHORT else file, "line": line}
            for name, file, line in calls
        ]


def _own(text: str) -> str:
    """The same text as an object of its own, which pickles anew."""
    return "/".join(text.split("/"))


def _status(counters: _Counters) -> dict[str, int]:
    return {
        "last_enqueued_collective": counters.enqueued,
        "last_started_collective": -1,
        "last_completed_collective": counters.completed,
    }
