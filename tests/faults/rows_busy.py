"""Jobs that are hung but look busy: class, culprit, kind and function must be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import Answer, Command, Row, culprit, program

_EXIT: Final = ("--job-exit-hang-interval=20",)
"""The default of ten minutes is longer than anybody waits here."""


def _row(
    name: str,
    what: str,
    expected: Answer | Callable[[Draw], Answer],
    command: Command,
    *,
    ranks: int = 3,
    zero: bool = False,
    flags: tuple[str, ...] = (),
) -> Row:
    return Row(
        name,
        "busy",
        what,
        expected,
        command,
        least_ranks=ranks,
        most_ranks=ranks,
        zero=zero,
        modes=("run",),
        patience=120.0,
        flags=flags,
    )


def _busy_looking(fault: str, *flags: str) -> Command:
    return program("busy_looking_job.py", f"--fault={fault}", "--rank={rank}", *flags)


ROWS: Final[tuple[Row, ...]] = (
    _row(
        "logs_go_on",
        "one rank waits for a batch that never comes, while a thread of it prints",
        culprit("RankNonCommHang", "data_loading", "next_batch"),
        _busy_looking("logging_thread"),
    ),
    _row(
        "polls_and_prints",
        "one rank prints twice a second while it waits for a file that never comes",
        culprit("RankNonCommHang", "python_loop", "wait_for_marker"),
        _busy_looking("polling", "--step-time=0.2", "--at=20"),
    ),
    _row(
        "polls_often",
        "one rank prints twenty times a second while it waits for a file that never comes",
        culprit("RankNonCommHang", "python_loop", "wait_for_marker"),
        _busy_looking("polling", "--poll=0.05"),
        ranks=2,
        zero=True,
    ),
    _row(
        "spins",
        "one rank spins in a Python loop",
        culprit("RankNonCommHang", "python_loop", "wait_until_ready"),
        _busy_looking("spinning"),
        zero=True,
    ),
    _row(
        "victims_spin",
        "one rank waits for a message; the ranks that wait for it spin, as with CUDA and NCCL",
        culprit("RankNonCommHang", "lock", "wait_for_peer"),
        _busy_looking("message", "--spin"),
    ),
    _row(
        "all_spin",
        "one rank spins in a Python loop and so do the ranks that wait for it",
        culprit("RankNonCommHang", "python_loop", "wait_until_ready"),
        _busy_looking("spinning", "--spin"),
        ranks=2,
    ),
    _row(
        "store_key",
        "all ranks wait for a key that nobody writes to the store",
        Answer("RankNonCommHang", "-", "store_wait", "wait_for_settings"),
        program("busy_looking_job.py", "--fault=store_key", "--rank=-1"),
        ranks=4,
    ),
    _row(
        "answers_signals",
        "one rank answers a signal twice a second and goes on waiting for a message",
        culprit("RankNonCommHang", "lock", "wait_for_peer"),
        _busy_looking("signals", "--step-time=0.05", "--at=60"),
        ranks=2,
        zero=True,
    ),
    _row(
        "exit_thread",
        "all ranks have finished, one keeps a thread that never ends",
        culprit("RankNonCommHang", "exit", "upload_metrics"),
        program("exit_hang.py", "--keeps=thread", "--rank={rank}"),
        zero=True,
        flags=_EXIT,
    ),
    _row(
        "exit_child",
        "all ranks have finished, one waits for a child process that never ends",
        culprit("RankNonCommHang", "child_process", "stop_tracker"),
        program("exit_hang.py", "--keeps=child", "--rank={rank}"),
        ranks=2,
        flags=_EXIT,
    ),
)
