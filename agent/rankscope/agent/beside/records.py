"""The records of a watch: the same folder and files as an agent's, and events that can be read along.

A job under ``diag run`` has an agent that writes ``job.json`` and says where its workers are; a watch beside
it writes its events and incidents only.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec

from rankscope.agent.records.folder import Records
from rankscope.diag.store.events import Event
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder


class WatchRecords(Records):
    """Writes one watch's records. Thread-safe; no method raises.

    Args:
        folder: the job's folder.
        say_once: called with one line the first time something cannot be stored.
        guest: whether an agent of the job keeps the folder.
        on_event: gets each event, whether it can be stored or not.
    """

    def __init__(
        self,
        folder: JobFolder,
        say_once: Callable[[str], None],
        *,
        guest: bool,
        on_event: Callable[[Event], None],
    ) -> None:
        super().__init__(folder, say_once, shared=True, beside=True)
        self._guest = guest
        self.listeners.append(on_event)

    def job_file(self, value: JobFile) -> None:
        """Write ``job.json``, unless the job's agent does."""
        if not self._guest:
            super().job_file(value)

    def agent_file(self, value: AgentFile) -> None:
        """Write ``agent.json``, which leads others to the workers; one of several watches is enough."""
        if not self._guest and self.node == socket.gethostname():
            super().agent_file(msgspec.structs.replace(value, beside=True))
