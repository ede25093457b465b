"""Independent workers as one process context for torch's agent: a context each, started again one by one.

Stands in torch's place while its agent starts the workers, and answers torch's polls with what it is told:
whether they are done or lost is not decided here. Tried and rejected: one context of all, which kills the
survivors in the poll that finds a failure.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any, Final

from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, PContext, RunProcsResult
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from rankscope.agent.async_mode import try_logs
from rankscope.agent.async_mode.worker import CommandWorker, End, FunctionWorker, Worker, worker_in
from rankscope.agent.workers.model import WorkerRef
from rankscope.agent.workers.stopping import stop_processes
from rankscope.diag import proc

Start = Callable[..., PContext]
"""torch's ``start_processes``."""
_SEAM: Final = "start_processes"
_RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"


class Contexts(PContext):
    """The process contexts of a node's independent workers. For the main thread.

    Attributes:
        result: what torch is told at its next poll, ``None`` while the workers are to go on.
        error_files: of each worker's last start, by local rank, as are ``stdouts`` and ``stderrs``.
    """

    def __init__(
        self,
        start: Start,
        *,
        args: Mapping[int, tuple[object, ...]],
        envs: Mapping[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
        restarts: Mapping[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Start all workers.

        Args:
            start: torch's ``start_processes``, whose other arguments these are.
            args: of each worker.
            envs: of each worker.
            logs_specs: asked once, for all of them.
            log_line_prefixes: of each worker.
            restarts: how often each has been started again before.
            kwargs: the rest of what torch's agent gives.
        """
        # torch's constructor would make one context of them all.
        self._start_one = start
        self._args, self._envs, self._specs, self._kwargs = args, envs, logs_specs, kwargs
        self._prefixes = log_line_prefixes or {}
        self.name, self.entrypoint, self.nprocs = kwargs["name"], kwargs["entrypoint"], len(args)
        self.result: RunProcsResult | None = None
        self._workers: dict[int, Worker] = {}
        self._ended: set[int] = set()
        self._dests: dict[int, LogsDest] = {}
        self._base: dict[int, int] = {}
        dest = logs_specs.reify(dict(envs))
        for local_rank, env in envs.items():
            self._dests[local_rank] = try_logs.of_one(dest, local_rank)
            # torch's own, of all workers together, and those of this worker alone.
            self._base[local_rank] = int(env.get(_RESTART_COUNT, "0"))
            env[_RESTART_COUNT] = str(self._base[local_rank] + (restarts or {}).get(local_rank, 0))
        try:
            for local_rank in sorted(envs):
                self._begin(local_rank, envs[local_rank])
        except BaseException:  # a signal's, too: nobody else knows of those that run by now
            self.close()
            raise

    def poll(self) -> dict[int, End]:
        """Workers that have ended since the last call, by local rank."""
        running = [one for local_rank, one in self._workers.items() if local_rank not in self._ended]
        ends = {one.local_rank: end for one in running if (end := one.poll()) is not None}
        self._ended |= ends.keys()
        return ends

    def env(self, local_rank: int) -> dict[str, str]:
        """The environment of the worker's first start, a copy."""
        return dict(self._envs[local_rank])

    def failure(self, local_rank: int, end: End) -> ProcessFailure:
        """A worker's failure as torch reports it."""
        return self._workers[local_rank].failure(end)

    def release(self, local_rank: int) -> None:
        """A worker has ended: close its files, stop what follows its logs."""
        self._workers[local_rank].release()

    def start_again(self, local_rank: int, env: dict[str, str], *, restarts: int) -> None:
        """Start a worker that has ended and was released.

        Args:
            local_rank: the worker's.
            env: its environment; gets its error file, FIFOs and restart count.
            restarts: how often it has been started again, this time included.

        Raises:
            OSError: it cannot be started.
        """
        count = self._base[local_rank] + restarts
        env[_RESTART_COUNT] = str(count)
        self._dests[local_rank] = try_logs.later(
            self._specs, self._dests[local_rank], env, local_rank=local_rank, restarts=count
        )
        self._begin(local_rank, env)

    def is_over(self) -> bool:
        """Whether torch is told of the workers' end."""
        return self.result is not None

    # torch's interface.

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        """Stop the workers that run, and let go of all that belongs to any of them.

        torch's closes what follows the logs as well, by names that differ between its versions; here each
        worker's context does that.
        """
        self._close(death_sig=death_sig or signal.SIGTERM, timeout=timeout)
        for one in self._workers.values():
            one.release()

    def pids(self) -> dict[int, int]:
        """The processes by local rank; of a worker that has ended, the last one."""
        return {local_rank: one.pid for local_rank, one in self._workers.items()}

    def _start(self) -> None:
        """They have been started."""

    def _poll(self) -> RunProcsResult | None:
        return self.result

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        running = [one for local_rank, one in self._workers.items() if local_rank not in self._ended]
        # All together: torch would wait for each in turn.
        stop_processes(
            [
                WorkerRef(one.local_rank, one.local_rank, one.pid, proc.start_ticks(one.pid) or 0)
                for one in running
            ],
            death_sig=death_sig,
            timeout=timeout,
            as_groups=self._are_commands,
        )

    @property
    def _are_commands(self) -> bool:
        return isinstance(self.entrypoint, str)

    def _begin(self, local_rank: int, env: dict[str, str]) -> None:
        prefix = self._prefixes.get(local_rank, f"[{self.name}{local_rank}]:")
        entrypoint, args, kwargs = self._bound(local_rank)
        context = self._start_one(
            **kwargs,
            entrypoint=entrypoint,
            args={0: args},
            envs={0: env},
            logs_specs=try_logs.OneRankLogs(self._dests[local_rank], self._specs.root_log_dir),
            log_line_prefixes={0: prefix},
        )
        self._workers[local_rank] = worker_in(context, local_rank)
        self._ended.discard(local_rank)
        dests = self._dests
        self.error_files = {rank: dest.error_files.get(0, "") for rank, dest in dests.items()}
        self.stdouts = {rank: dest.stdouts.get(0, "") for rank, dest in dests.items()}
        self.stderrs = {rank: dest.stderrs.get(0, "") for rank, dest in dests.items()}
        self._show()

    def _bound(self, local_rank: int) -> tuple[Any, tuple[object, ...], dict[str, Any]]:
        """Entrypoint and arguments of a worker, bound to its CPUs if that is wanted."""
        kwargs, args = dict(self._kwargs), self._args[local_rank]
        entrypoint = kwargs.pop("entrypoint")
        options = kwargs.get("numa_options")
        if options is None:
            return entrypoint, args, kwargs
        from rankscope.agent.async_mode.numa import BoundFunction, bound_command

        kwargs["numa_options"] = None
        if not isinstance(entrypoint, str):
            return BoundFunction(entrypoint, options, gpu=local_rank), args, kwargs
        first, *rest = bound_command((entrypoint, *map(str, args)), options, gpu=local_rank)
        return first, tuple(rest), kwargs

    def _show(self) -> None:
        """Lay out the processes as torch's contexts of several workers do: ``process_context`` reads that."""
        workers = dict(sorted(self._workers.items()))
        if self._are_commands:
            self.subprocess_handlers = {
                rank: one.handler for rank, one in workers.items() if isinstance(one, CommandWorker)
            }
        else:
            processes = [one.process for one in workers.values() if isinstance(one, FunctionWorker)]
            self._pc = SimpleNamespace(processes=processes)


@contextlib.contextmanager
def in_torchs_place(make: Callable[..., PContext]) -> Generator[None]:
    """Have torch's agent call ``make(start_processes, **its arguments)`` where it starts processes."""
    torchs: Start = getattr(local_elastic_agent, _SEAM)

    def start(**kwargs: Any) -> PContext:
        return make(torchs, **kwargs)

    setattr(local_elastic_agent, _SEAM, start)
    try:
        yield
    finally:
        setattr(local_elastic_agent, _SEAM, torchs)
