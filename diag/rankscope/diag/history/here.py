"""Whether a node's records are of this host since it was started: what does not run of it now is dead.

Of all others nobody here can tell. A container shares its kernel, and so the boot, with the containers beside
it, and sees none of their processes: its host name tells it from them.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from rankscope.diag import proc
from rankscope.diag.store.events import Event, boot_name
from rankscope.diag.store.job import ENDED, AgentFile


@dataclass(frozen=True, slots=True)
class Here:
    """This host: its name, and its boot as an event's clock has it."""

    host: str
    boot: str


def this_host() -> Here:
    """This host, as nodes' records name it."""
    return Here(socket.gethostname(), boot_name())


def is_here(node: str, last: Event, here: Here) -> bool:
    """Whether an agent was of this host, and of its present boot.

    Args:
        node: name of its folder: the host, with ``~2`` behind it for a second agent there.
        last: its last event.
        here: this host.
    """
    return last.clock.startswith(f"{here.boot}:") and node.partition("~")[0] == here.host


def lives(agent: AgentFile) -> bool:
    """Whether an agent of this host runs now: one that has said its last word counts as gone.

    Its process may still end then, and later its number may be another one's.
    """
    return (
        agent.phase != ENDED and agent.start_ticks != 0 and proc.start_ticks(agent.pid) == agent.start_ticks
    )
