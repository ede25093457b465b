"""torch's log specification, with FIFOs in place of files: what the agent hands to torch for each attempt.

Decides the folders and which rank is shown; who reads the FIFOs is ``process``'s business. torch's fields
are taken as they come, so that older and newer versions of ``LogsDest`` both work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, PContext, SubprocessContext

from rankscope.agent.logs.process import CapturedStream, LogCapture, StreamKey, StreamName
from rankscope.watchdog import environment

_RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
_VARIABLES: Final[dict[StreamName, str]] = {"stdout": environment.STDOUT, "stderr": environment.STDERR}


class CapturedLogsSpecs(DefaultLogsSpecs):
    """Log destinations of captured workers.

    Files lie in ``<log_dir>/attempt_<restart count>/<local rank>/{stdout,stderr}.log`` beside torch's
    ``error.json``; an attempt with the number of an earlier one (a membership change restarts workers without
    counting) becomes ``attempt_<n>.1`` and so on, nothing is removed. Where a stream cannot be captured,
    the worker inherits the agent's, as without redirects. An attempt whose folders cannot be made (a full
    disk, a folder that is gone) is torch's own: error files in a temporary folder, or nowhere.
    """

    def __init__(
        self,
        capture: LogCapture,
        log_dir: str | os.PathLike[str],
        *,
        function_entrypoint: bool = False,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        """Describe the logs.

        Args:
            capture: started.
            log_dir: the node's ``logs`` folder; made if it is missing.
            function_entrypoint: workers are functions: they get the FIFOs' names in their environment and
                redirect themselves (``rankscope.watchdog.probe.entry``).
            local_ranks_filter: the ranks that are shown, None for all; the others only go to their files.

        Raises:
            OSError: the folder cannot be made.
        """
        super().__init__(log_dir=os.fspath(log_dir), local_ranks_filter=local_ranks_filter)
        self._capture = capture
        self._function_entrypoint = function_entrypoint
        self._elsewhere: DefaultLogsSpecs | None = None

    def _make_log_dir(self, log_dir: str | None, rdzv_run_id: str) -> str:
        # torch would make a folder with a random name in it; ours belongs to one node of one job already.
        return log_dir or super()._make_log_dir(log_dir, rdzv_run_id)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the attempt's folders and open its streams; called once an attempt, before workers start.

        Args:
            envs: environment of each local rank; gets torch's error file, and the FIFOs' names where the
                workers are functions.
        """
        try:
            dest = self._make_attempt(envs)
        except OSError as error:
            self._capture.leave_out(f"no folder for it ({error.strerror or error}: {self.root_log_dir})")
            return self._reify_elsewhere(envs)
        fifos = self._capture.open(self._streams(dest.error_files))
        if not fifos:
            return dest
        if self._function_entrypoint:
            for (rank, name), fifo in fifos.items():
                envs[rank][_VARIABLES[name]] = str(fifo)
            inherited = dict.fromkeys(envs, "")
            return replace(dest, stdouts=inherited, stderrs=dict(inherited))
        return replace(dest, stdouts=_of(fifos, "stdout"), stderrs=_of(fifos, "stderr"))

    def again(self, local_rank: int, env: dict[str, str], folder: Path) -> tuple[str, str]:
        """Open the streams of one worker that is started again while the others run on (Async).

        Args:
            local_rank: the worker's; its earlier streams are read to their end and let go.
            env: its environment; gets the FIFOs' names where workers are functions.
            folder: where its files go; exists.

        Returns:
            What takes the place of the attempt's ``stdouts`` and ``stderrs``, ``""`` for the agent's stream.
        """
        fifos = self._capture.open(self._streams({local_rank: str(folder / "error.json")}))
        names = {name: str(fifo) for (_rank, name), fifo in fifos.items()}
        if not self._function_entrypoint:
            return names.get("stdout", ""), names.get("stderr", "")
        for name, variable in _VARIABLES.items():
            env.pop(variable, None)
            if name in names:
                env[variable] = names[name]
        return "", ""

    def _make_attempt(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        named = {rank: dict(env) for rank, env in envs.items()}
        if named:
            named[0][_RESTART_COUNT] = self._free_attempt(named[0].get(_RESTART_COUNT, "0"))
        dest = super().reify(named)
        for rank, env in envs.items():
            env[_ERROR_FILE] = named[rank][_ERROR_FILE]
        return dest

    def _reify_elsewhere(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        try:
            if self._elsewhere is None:
                self._elsewhere = DefaultLogsSpecs(local_ranks_filter=self._local_ranks_filter)
            return self._elsewhere.reify(envs)
        except OSError:
            self._elsewhere = None
        dest = DefaultLogsSpecs(log_dir=os.devnull).reify(envs)
        # Without a folder torch forgets its own filter.
        silent = {rank: os.devnull for rank in envs if not self._is_shown(rank)}
        return replace(dest, stdouts=dest.stdouts | silent, stderrs=dest.stderrs | silent)

    def _is_shown(self, rank: int) -> bool:
        return not self._local_ranks_filter or rank in self._local_ranks_filter

    def _free_attempt(self, count: str) -> str:
        taken, names = Path(self.root_log_dir), [count]
        while (taken / f"attempt_{names[-1]}").exists():
            names.append(f"{count}.{len(names)}")
        return names[-1]

    def _streams(self, error_files: Mapping[int, str]) -> list[CapturedStream]:
        return [
            CapturedStream(
                local_rank=rank,
                name=name,
                file=Path(error_file).with_name(f"{name}.log"),
                on_console=self._is_shown(rank),
            )
            for rank, error_file in error_files.items()
            for name in _VARIABLES
        ]


def _of(fifos: Mapping[StreamKey, Path], wanted: StreamName) -> dict[int, str]:
    return {rank: str(fifo) for (rank, name), fifo in fifos.items() if name == wanted}


def close_writing_ends(context: PContext) -> None:
    """Close the ends that the agent itself keeps of its workers' FIFOs once they are started.

    torch leaves them open until the context is collected, and the drain could not see the workers' end.
    """
    if isinstance(context, SubprocessContext):
        for handler in context.subprocess_handlers.values():
            for name in ("_stdout", "_stderr"):
                stream = getattr(handler, name, None)
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
