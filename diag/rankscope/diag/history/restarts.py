"""The restarts of a job, each with the faults behind it, over all nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.diag.history.lenient import read_leniently
from rankscope.diag.history.model import Fault, Restart
from rankscope.diag.store.events import Event
from rankscope.diag.store.launches import RestartRecord

NEVER_RAN: Final = "workers did not run again"
_Key = tuple[int | None, int, bool, int]


@dataclass(slots=True)
class NodeRestarts:
    """What one node tells.

    Attributes:
        records: its restarts, by what makes them the same on all nodes.
        faults: what failed before each; ``None`` for what no restart followed.
        warnings: what could not be read.
    """

    records: dict[_Key, RestartRecord] = field(default_factory=dict[_Key, RestartRecord])
    faults: dict[_Key | None, list[Fault]] = field(default_factory=dict["_Key | None", list[Fault]])
    warnings: list[str] = field(default_factory=list[str])


def restarts_of(node: str, events: Iterable[Event]) -> NodeRestarts:
    """The restarts and faults that the events of a node tell of."""
    reading = _Reading(node)
    for event in events:
        reading.take(event)
    reading.close()
    return reading.found


class _Reading:
    def __init__(self, node: str) -> None:
        self.found = NodeRestarts()
        self._node = node
        self._faults: list[Fault] = []
        self._seen: Counter[tuple[int | None, int, bool]] = Counter()
        self._under_way: dict[int | None, _Key] = {}

    def take(self, event: Event) -> None:
        match event.name:
            case "worker.failed":
                self._faults.append(_fault(self._node, event))
            case "restart.begun":
                record = self._read(event)
                self._begin(msgspec.structs.replace(record, result=NEVER_RAN))
            case "restart":
                self._complete(self._read(event))
            case "job.started" | "job.ended":
                self.close()
                self._under_way.clear()
            case _:
                pass

    def close(self) -> None:
        """What failed, and was not followed by a restart."""
        self.found.faults.setdefault(None, []).extend(self._faults)
        self._faults = []

    def _begin(self, record: RestartRecord) -> _Key:
        alike = (record.worker, record.restarts, record.is_counted)
        self._seen[alike] += 1
        key = (*alike, self._seen[alike])
        self._under_way[record.worker] = key
        self.found.records[key] = record
        mine = [fault for fault in self._faults if record.worker in (None, fault.rank)]
        self._faults = [fault for fault in self._faults if fault not in mine]
        self.found.faults[key] = mine
        return key

    def _complete(self, record: RestartRecord) -> None:
        key = self._under_way.get(record.worker)
        if key is None:
            key = self._begin(record)  # of a version that told of it only when it was complete
        self.found.records[key] = record
        self._under_way.pop(record.worker, None)

    def _read(self, event: Event) -> RestartRecord:
        record, missing = read_leniently(event.data, RestartRecord)
        if missing:
            self.found.warnings.append(
                f"node {self._node}: the restart at {event.time} is of another version or damaged: "
                f"{', '.join(missing)} not known"
            )
        return record if record.restart_time else msgspec.structs.replace(record, restart_time=event.time)


def _fault(node: str, event: Event) -> Fault:
    data = event.data
    rank, code = data.get("rank"), data.get("exit_code")
    return Fault(
        time=event.time,
        node=_text(data, "node") or node,
        rank=rank if isinstance(rank, int) else -1,
        exit_code=code if isinstance(code, int) else None,
        message=_text(data, "message"),
        is_root=data.get("root") is True,
        identity=_text(data, "identity"),
        incident=event.subject,
    )


def _text(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def joined(nodes: Mapping[str, NodeRestarts], *, unfold: bool) -> tuple[Restart, ...]:
    """The restarts of all nodes, one for what all of them did together, in order of time.

    Args:
        nodes: by name.
        unfold: keep each node's own record too.
    """
    keys = dict.fromkeys(key for each in nodes.values() for key in each.records)
    restarts = [_join(key, nodes, unfold=unfold) for key in keys]
    return tuple(sorted(restarts, key=lambda restart: restart.record.restart_time))


def _join(key: _Key, nodes: Mapping[str, NodeRestarts], *, unfold: bool) -> Restart:
    there = {node: each for node, each in nodes.items() if key in each.records}
    records = [each.records[key] for each in there.values()]
    faults = [fault for each in there.values() for fault in each.faults.get(key, [])]
    return Restart(
        record=min(records, key=_telling),
        nodes=tuple(there),
        faults=in_order(faults),
        records=tuple(records) if unfold else (),
    )


def _telling(record: RestartRecord) -> tuple[bool, bool, str]:
    """What sorts first tells most of why: the failure itself, then a verdict, then the first in time."""
    return not record.identity, not record.error_code, record.restart_time


def in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Faults in order of time, each of a rank once: a node may tell of the root of another one."""
    once: dict[tuple[int, str | None, str], Fault] = {}
    for fault in sorted(faults, key=lambda one: (not one.is_root, one.time)):
        once.setdefault((fault.rank, fault.incident, fault.message if fault.incident is None else ""), fault)
    return tuple(sorted(once.values(), key=lambda one: (one.time, one.rank)))
