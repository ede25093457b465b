"""torch's process context of a single worker, asked without waiting: has it ended, how, with what value.

torch's own poll would name every such worker local rank 0, and waits for a function's process to end once it
has returned; meanwhile nobody would look after the others. Reads torch's private names of its contexts. It
must not know why a worker runs or ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from torch.distributed.elastic.multiprocessing import PContext
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from rankscope.agent.logs.specs import close_writing_ends
from rankscope.agent.workers.exits import exit_code

logger = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
"""torch's own, for the lines that its users know."""
_NO_GRACE: Final = 0


@dataclass(frozen=True, slots=True)
class End:
    """How a worker's process ended.

    Attributes:
        code: as Python has it, negative for a signal.
        value: what a function returned.
        at: when it was seen, monotonic seconds.
    """

    code: int
    at: float
    value: object = None


class CommandWorker:
    """A worker that is a command; it leads a process group of its own.

    Args:
        context: of this worker alone, started.
        local_rank: the worker's, which the context does not know.
    """

    def __init__(self, context: PContext, local_rank: int) -> None:
        self.context = context
        self.local_rank = local_rank
        self.handler: Any = getattr(context, "subprocess_handlers")[0]  # noqa: B009 - only commands have it
        self.pid: int = self.handler.proc.pid
        close_writing_ends(context)

    def poll(self) -> End | None:
        """How it has ended, ``None`` while it runs. What is left of a failed one's group is killed."""
        code = exit_code(self.pid)
        if code:
            # Before its pid is given free: what it started would go on with the same work as its successor.
            self._kill_group()
        code = self.handler.proc.poll()
        return None if code is None else End(code, time.monotonic())

    def failure(self, end: End) -> ProcessFailure:
        """The failure as torch reports it; logged as torch does."""
        failure = _failure(self, end)
        logger.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s",
            failure.exitcode,
            failure.local_rank,
            failure.pid,
            getattr(self.context, "entrypoint", ""),
        )
        return failure

    def release(self) -> None:
        """After its end: stop following its logs, close its files; again, if you like."""
        _close(self.context, has_ended=self.handler.proc.poll() is not None)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class FunctionWorker:
    """A worker that is a function.

    Args:
        context: of this worker alone, started.
        local_rank: the worker's, which the context does not know.
    """

    def __init__(self, context: PContext, local_rank: int) -> None:
        self.context = context
        self.local_rank = local_rank
        self._processes: Any = getattr(context, "_pc")  # noqa: B009 - only functions have it
        self.process: Any = self._processes.processes[0]
        self.pid: int = self.process.pid
        self._queue: Any = getattr(context, "_ret_vals")[0]  # noqa: B009
        self._value: object = None
        # With our end open a worker that is killed while it writes its value would keep us reading for ever.
        with contextlib.suppress(AttributeError, OSError):
            self._queue._writer.close()  # noqa: SLF001

    def poll(self) -> End | None:
        """How it has ended, ``None`` while it runs; a value that it returned lets it end."""
        code = self.process.exitcode
        self._take_value()
        return None if code is None else End(code, time.monotonic(), self._value)

    def failure(self, end: End) -> ProcessFailure:
        """The failure as torch reports it; the exception is logged as torch does."""
        failure = _failure(self, end)
        error = self._join()
        logger.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of fn: %s%s",
            failure.exitcode,
            failure.local_rank,
            failure.pid,
            getattr(getattr(self.context, "entrypoint", None), "__qualname__", ""),
            f"\n{error}" if error else "",
        )
        return failure

    def release(self) -> None:
        """After its end: stop following its logs, close its files and queues; again, if you like."""
        self._join()
        _close(self.context, has_ended=self.process.exitcode is not None)
        with contextlib.suppress(AttributeError, OSError):
            self._queue._reader.close()  # noqa: SLF001

    def _take_value(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            if not self._queue.empty():
                self._value = self._queue.get()
                self._let_end()

    def _let_end(self) -> None:
        """It waits for the word that its value was read; killed in that wait it would block us."""
        finished: Any = getattr(self.context, "_worker_finished_event")  # noqa: B009
        threading.Thread(target=finished.set, name="rankscope-let-end", daemon=True).start()

    def _join(self) -> str:
        """Have torch reap it and remove its files; the traceback of an exception, without its title."""
        try:
            self._processes.join(-1)
        except ProcessExitedException:
            return ""
        except ProcessRaisedException as error:
            return str(error).strip().partition("\n")[2]
        return ""


Worker = CommandWorker | FunctionWorker


def worker_in(context: PContext, local_rank: int) -> Worker:
    """The worker of a context of one, whichever kind it is."""
    kind = CommandWorker if hasattr(context, "subprocess_handlers") else FunctionWorker
    return kind(context, local_rank)


def _close(context: PContext, *, has_ended: bool) -> None:
    """Have torch close what is the context's own; a worker that nothing ends (in the kernel) is left."""
    if not has_ended:
        # torch's would wait for it, in older versions for ever.
        context._close = _nothing  # type: ignore[method-assign]  # noqa: SLF001 - a seam (decision 0009)
    context.close(signal.SIGTERM, _NO_GRACE)


def _nothing(death_sig: signal.Signals, timeout: int = 0) -> None:
    """What is to be done for a process that nothing ends."""


def _failure(worker: Worker, end: End) -> ProcessFailure:
    error_file = worker.context.error_files.get(0, "")
    return ProcessFailure(
        local_rank=worker.local_rank, pid=worker.pid, exitcode=end.code, error_file=error_file
    )
