"""The faults that the demonstration's training run can be given, and what a diagnosis should say of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to get stuck.

    Attributes:
        verdict: what the diagnosis should say; kind and function where it should point.
    """

    name: str
    verdict: str
    kind: str
    function: str
    what: str


FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault(
            "data_loading", "RankNonCommHang", "data_loading", "read_shard", "a shard never finishes reading"
        ),
        Fault(
            "loader_worker",
            "RankNonCommHang",
            "data_loading",
            "read_shard",
            "the same, in a worker process of the data loader",
        ),
        Fault("lock", "RankNonCommHang", "lock", "write", "a lock that another thread never gives back"),
        Fault("frozen", "RankNonCommHang", "frozen", "stop_here", "the process is stopped by a signal"),
        Fault("crash", "Exited", "dead", "inject", "an exception, while the others wait in a collective"),
        Fault("killed", "Exited", "dead", "", "killed by SIGKILL, as the OOM killer does"),
    )
}
