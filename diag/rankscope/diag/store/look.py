"""Where ``diag snapshot`` writes: ``DIR/<host>/<time>-<hex>/snapshot-{a,b}.json.zst``.

Each look has a folder of its own, which appears whole: it is written beside under a hidden name and renamed.
So hosts, pods of one name and a second run may share a folder, and nobody reads half of a look or loses one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from rankscope.diag.model import JobSnapshot
from rankscope.diag.store.files import flush_entries
from rankscope.diag.store.incidents import IncidentFolder, new_incident_id
from rankscope.diag.store.job import folder_name

_TRIES: Final = 8


class LookFolder:
    """The folder of one look at one job on one host."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, host: str, first: JobSnapshot) -> LookFolder:
        """Write the first snapshot into a new folder.

        Raises:
            OSError: it cannot be written.
        """
        above = root / folder_name(host)
        above.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            name = new_incident_id(first.time)
            beside = above / f".{name}.{os.getpid()}"
            try:
                beside.mkdir()
                IncidentFolder(beside).write_snapshot("a", first)
                beside.rename(above / name)
            except OSError:
                shutil.rmtree(beside, ignore_errors=True)
                if not (above / name).exists():  # else another look has that name
                    raise
            else:
                flush_entries(above)
                return cls(above / name)
        raise FileExistsError(str(above))

    def add_second(self, second: JobSnapshot) -> None:
        """Write the second snapshot.

        Raises:
            OSError: it cannot be written.
        """
        IncidentFolder(self.path).write_snapshot("b", second)
