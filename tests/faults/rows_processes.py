"""Faults of a rank's own processes, threads, files and ends: what each is, and what must be said of it.

The expected table, from DIAGNOSIS.md and from what the fault is. Rules: with flight records (``run``) row 4
finds the rank that the others wait for, beside plain torchrun, without records, row 8. Where a rank has ended
row 1 says so, where it cannot run row 2; where all are in one place row 10, without a culprit. That a rank
lingers after the others have ended has no row in DIAGNOSIS.md: no rule is expected there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import Answer, Expectation, Mode, Row, culprit, program

_WAITED_FOR: Final = "4|8"
_HANG: Final = "RankNonCommHang"
_RUN_ONLY: Final[tuple[Mode, ...]] = ("run",)
"""torchrun itself ends a job one worker of which has died: nothing is left to look at."""
_AT: Final = ("--rank={rank}", "--at={at}")
_ALL: Final = ("--rank=-1", "--at={at}")
_IN_FOLDER: Final = "--folder={folder}/data"

_Expected = Answer | Callable[[Draw], Expectation]


def _row(
    name: str,
    what: str,
    expected: _Expected,
    command: Callable[[Path, Draw], list[str]],
    renames: tuple[str, ...],
    *,
    modes: tuple[Mode, ...] = ("run", "beside"),
    zero: bool = True,
    flags: tuple[str, ...] = (),
) -> Row:
    return Row(
        name,
        "diagnosis",
        what,
        expected,
        command,
        renames=renames,
        most_ranks=5,
        modes=modes,
        zero=zero,
        flags=flags,
    )


def _hangs(kind: str, function: str, line: str, *, rule: str = _WAITED_FOR) -> Callable[[Draw], Expectation]:
    return culprit(_HANG, kind, function, rule=rule, line=line)


_LOADING_NAMES: Final = ("Index", "offset", "renew", "Samples", "obtain", "ask", "unpack", "train")


def _loading(name: str, what: str, expected: _Expected, fault: str, *, workers: int = 2) -> Row:
    command = program("loading_job.py", f"--fault={fault}", f"--workers={workers}", *_AT)
    modes = _RUN_ONLY if fault == "killed" else ("run", "beside")
    return _row(name, what, expected, command, _LOADING_NAMES, modes=modes)


_LOADING: Final = (
    _loading(
        "data_asleep",
        "a sample never comes, and the rank loads it itself",
        _hangs("data_loading", "ask", "asleep"),
        "asleep",
        workers=0,
    ),
    _loading(
        "loader_asleep",
        "a sample never comes, and one of two loader workers waits for it",
        _hangs("data_loading", "ask", "asleep"),
        "asleep",
    ),
    _loading(
        "loader_killed",
        "a loader worker is killed: torch raises in the rank, which ends",
        culprit("Exited", "dead", "train", rule="1", line="killed"),
        "killed",
    ),
    _loading(
        "loader_forked_lock",
        "a loader worker was forked while a thread of the rank held a lock, and now waits for it",
        _hangs("data_loading", "offset", "forked"),
        "forked",
    ),
)

_SAVING_NAMES: Final = ("write_shard", "send_shard", "fetch_shard", "use_storage")


def _saving(
    name: str,
    what: str,
    expected: _Expected,
    fault: str,
    *,
    where: tuple[str, ...] = _AT,
    zero: bool = True,
) -> Row:
    command = program("saving_job.py", f"--fault={fault}", _IN_FOLDER, *where)
    return _row(name, what, expected, command, _SAVING_NAMES, zero=zero)


_SAVING: Final = (
    _saving(
        "checkpoint_write",
        "the file of a checkpoint cannot be opened: the storage is dead",
        _hangs("checkpoint", "write_shard", "write"),
        "write",
    ),
    _saving(
        "checkpoint_upload",
        "a checkpoint is piped into a command that does not take it",
        _hangs("checkpoint", "send_shard", "upload"),
        "upload",
    ),
    _saving(
        "checkpoint_read",
        "a checkpoint is read from dead storage",
        _hangs("checkpoint", "fetch_shard", "read"),
        "read",
    ),
    _saving(
        "checkpoint_all",
        "no rank can open its checkpoint: a common cause",
        Answer(_HANG, "-", "checkpoint", "write_shard", "10", "write"),
        "write",
        where=_ALL,
        zero=False,
    ),
)

_LOCKING_NAMES: Final = (
    *("Meter", "add", "answer", "write_out", "rotate", "serve", "close", "deadlock"),
    *("values_lock", "file_lock"),
)


def _locking(name: str, what: str, fault: str, function: str) -> Row:
    command = program("locking_job.py", f"--fault={fault}", *_AT)
    return _row(name, what, _hangs("lock", function, fault), command, _LOCKING_NAMES)


_LOCKING: Final = (
    _locking("lock_held", "another thread keeps the lock that the main thread needs", "held", "add"),
    _locking("locks_crossed", "two threads take two locks, each in its own order", "crossed", "write_out"),
    # What is joined decides where it is the only thread there is (decision 0018).
    _locking("thread_joined", "the main thread waits for a thread, which goes on", "join", "serve"),
)

_ENDING_NAMES: Final = (
    *("Mirror", "copy_until_stopped", "check", "read_header", "misbehave", "meet"),
    "train",
)


def _ending(
    name: str,
    what: str,
    expected: _Expected,
    fault: str,
    *,
    modes: tuple[Mode, ...] = _RUN_ONLY,
    flags: tuple[str, ...] = (),
) -> Row:
    command = program("ending_job.py", f"--fault={fault}", *_AT)
    return _row(name, what, expected, command, _ENDING_NAMES, modes=modes, flags=flags)


_ENDING: Final = (
    _ending("rank_killed", "SIGKILL, as from the OOM killer", culprit("Exited", "dead", rule="1"), "killed"),
    _ending("rank_segfaults", "a segmentation fault", culprit("Exited", "dead", rule="1"), "segfault"),
    _ending(
        "rank_raises",
        "an exception on one rank while the others wait for it",
        culprit("Exited", "dead", "check", rule="1", line="raises"),
        "raises",
    ),
    _ending(
        "rank_leaves",
        "exit(0) too early: the others lose their connection to it and die of that",
        culprit("Exited", "exit", rule="1"),
        "left",
    ),
    _ending(
        "rank_leaves_quietly",
        "exit(0) too early in a job whose ranks meet in the store: the others wait on",
        # Beside: torchrun goes on, and it would end the job had the code not been 0.
        culprit("Exited", "exit", rule="1"),
        "left_quietly",
        modes=("run", "beside"),
    ),
    _ending(
        "thread_at_exit",
        "the script returns early, and the interpreter waits for a thread that never ends",
        _hangs("exit", "copy_until_stopped", "thread"),
        "thread",
        modes=("run", "beside"),
    ),
    _ending(
        "raises_with_thread",
        "an exception, and the interpreter waits for a thread that never ends",
        # The process stands as in thread_at_exit; where the exception came from would be as good a place.
        culprit(_HANG, "exit", rule=_WAITED_FOR),
        "raises_on",
        modes=("run", "beside"),
    ),
    _ending(
        "rank_lingers",
        "all ranks have finished, and a thread keeps the process of one",
        _hangs("exit", "copy_until_stopped", "thread", rule=""),
        "lingers",
        modes=("run", "beside"),
        flags=("--job-exit-hang-interval=20",),  # the default is ten minutes
    ),
)

_COMPUTING_NAMES: Final = ("search", "is_sentence", "wait_for_device", "compute")


def _computing(name: str, what: str, kind: str, function: str, fault: str) -> Row:
    command = program("computing_job.py", f"--fault={fault}", *_AT)
    return _row(name, what, _hangs(kind, function, fault), command, _COMPUTING_NAMES)


_COMPUTING: Final = (
    _computing("python_loop", "an endless loop in Python", "python_loop", "search", "loop"),
    _computing("gil_in_a_loop", "a loop in C that keeps the GIL", "native_gil", "is_sentence", "pattern"),
    _computing(
        "gil_in_a_sleep", "a native wait that keeps the GIL", "native_gil", "wait_for_device", "native_sleep"
    ),
    _computing(
        "gil_in_a_thread",
        "the same in a thread: the main thread stands wherever it was",
        "native_gil",
        "wait_for_device",
        "native_thread",
    ),
)

_HELPERS_NAMES: Final = (
    *("convert", "count", "count_all", "pause", "start_command", "build_operator"),
    "use_helper",
)


def _helpers(
    name: str,
    what: str,
    expected: _Expected,
    fault: str,
    *,
    where: tuple[str, ...] = _AT,
    zero: bool = True,
) -> Row:
    command = program("helpers_job.py", f"--fault={fault}", _IN_FOLDER, *where)
    return _row(name, what, expected, command, _HELPERS_NAMES, zero=zero)


_HELPERS: Final = (
    _helpers(
        "child_never_ends", "a command never ends", _hangs("child_process", "convert", "child"), "child"
    ),
    _helpers(
        "pool_killed",
        "a process of a pool is killed: what it had to do is never done",
        _hangs("child_process", "count_all", "pool"),
        "pool",
    ),
    _helpers(
        "rank_stopped",
        "SIGSTOP",
        _hangs("frozen", "pause", "stopped", rule="2"),
        "stopped",
    ),
    _helpers(
        "rank_in_kernel",
        "vfork: the child waits for a pipe's reader, the rank in the kernel for the child (state D)",
        _hangs("frozen", "start_command", "spawn", rule="2"),
        "spawn",
    ),
    _helpers(
        "stale_build_lock",
        "the lock file of a build that was killed",
        _hangs("compile", "build_operator", "build"),
        "build",
    ),
    _helpers(
        "stale_build_lock_all",
        "the same for all ranks: a common cause",
        Answer(_HANG, "-", "compile", "build_operator", "10", "build"),
        "build",
        where=_ALL,
        zero=False,
    ),
)
ROWS: Final[tuple[Row, ...]] = (*_LOADING, *_SAVING, *_LOCKING, *_ENDING, *_COMPUTING, *_HELPERS)
