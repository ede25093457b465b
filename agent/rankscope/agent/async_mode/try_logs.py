"""Where the output of one worker goes: its part of what all were given, and a place for each later start.

torch keeps the files of restart N in ``attempt_N/<local rank>``, and removes that folder when it makes it
anew; the first folder is everybody's, so a later start of a single worker only adds its own folder beside it.
It must not know why a worker is started again.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs

from rankscope.agent.logs.specs import CapturedLogsSpecs

logger = logging.getLogger(__name__)
_ATTEMPT: Final = "attempt_"
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"


class OneRankLogs(LogsSpecs):
    """Hands a process context of one worker what was decided for it."""

    def __init__(self, dest: LogsDest, root: str) -> None:
        """Keep ``dest``, whose only key is 0, and the folder of all logs."""
        super().__init__(log_dir=root)
        self._dest = dest

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:  # noqa: ARG002 - torch's signature
        """What was decided before."""
        return self._dest

    @property
    def root_log_dir(self) -> str:
        """The folder of all logs."""
        return str(self._root_log_dir)


def of_one(dest: LogsDest, local_rank: int) -> LogsDest:
    """The destinations of one worker under the key 0; its filtered lines go to a file of its own."""
    fields: dict[str, dict[int, str] | str] = {}
    for field in dataclasses.fields(dest):
        value: Mapping[int, str] | str = getattr(dest, field.name)
        if isinstance(value, str):
            fields[field.name] = _beside(dest.error_files.get(local_rank, ""), value)
        else:
            fields[field.name] = {0: value[local_rank]} if local_rank in value else {}
    return LogsDest(**fields)  # type: ignore[arg-type]  # torch's own fields, of whichever version


def later(
    specs: LogsSpecs, before: LogsDest, env: dict[str, str], *, local_rank: int, restarts: int
) -> LogsDest:
    """The destinations of a worker's next start, nothing of the earlier ones touched.

    Args:
        specs: of all workers.
        before: the worker's destinations at its last start, under the key 0.
        env: its environment; gets the error file, and the FIFOs' names where they are wanted.
        local_rank: the worker's.
        restarts: how often it has been started again, this time included.
    """
    error_file = before.error_files.get(0, "")
    if not error_file or error_file == os.devnull:
        return before
    old = Path(error_file).parent
    try:
        new = _made(old, restarts)
    except OSError as error:
        # A full disk. What went to a file would empty the last one: to the console instead.
        logger.warning(
            "no new folder for the output of local rank %d (%s): it goes where it went, or to the console",
            local_rank,
            error,
        )
        new, before = old, _on_console(before)
    dest = _moved(before, old, new)
    env[_ERROR_FILE] = dest.error_files[0]
    if not isinstance(specs, CapturedLogsSpecs):
        return dest
    stdout, stderr = specs.again(local_rank, env, new)
    return dataclasses.replace(dest, stdouts={0: stdout}, stderrs={0: stderr})


def _made(old: Path, restarts: int) -> Path:
    """A new folder for the worker: torch's name for such a restart, else one below the first."""
    attempt = old.parent
    if not attempt.name.startswith(_ATTEMPT):
        names = (old / f"try_{restarts}{more}" for more in _suffixes())
    else:
        names = (attempt.with_name(f"{_ATTEMPT}{restarts}{more}") / old.name for more in _suffixes())
    for folder in names:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(old)


def _suffixes() -> tuple[str, ...]:
    return ("", *(f".{number}" for number in range(1, 1000)))


def _moved(dest: LogsDest, old: Path, new: Path) -> LogsDest:
    """``dest`` with every file of the folder ``old`` in ``new``."""

    def place(path: str) -> str:
        return str(new / Path(path).name) if path and Path(path).parent == old else path

    fields: dict[str, dict[int, str] | str] = {}
    for field in dataclasses.fields(dest):
        value: Mapping[int, str] | str = getattr(dest, field.name)
        fields[field.name] = (
            place(value) if isinstance(value, str) else {k: place(v) for k, v in value.items()}
        )
    return LogsDest(**fields)  # type: ignore[arg-type]  # torch's own fields, of whichever version


def _on_console(dest: LogsDest) -> LogsDest:
    return dataclasses.replace(dest, stdouts={0: ""}, stderrs={0: ""}, tee_stdouts={}, tee_stderrs={})


def _beside(error_file: str, path: str) -> str:
    return str(Path(error_file).with_name(Path(path).name)) if error_file and path else path
