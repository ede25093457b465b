"""Jobs that are hung but look busy: class, culprit, kind and function must be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.faults.rows import Answer, Row, program

_EXIT: Final = ("--job-exit-hang-interval=20",)
"""The default of ten minutes is longer than anybody waits here."""


def _row(
    name: str,
    what: str,
    answer: Answer,
    command: Callable[[Path], list[str]],
    *,
    ranks: int = 3,
    flags: tuple[str, ...] = (),
) -> Row:
    return Row(name, "busy", what, answer, command, ranks=ranks, patience=120.0, flags=flags)


def _busy_looking(fault: str, *flags: str) -> Callable[[Path], list[str]]:
    return program("busy_looking_job.py", f"--fault={fault}", *flags)


ROWS: Final[tuple[Row, ...]] = (
    _row(
        "logs_go_on",
        "rank 1 waits for a batch that never comes, while a thread of it prints",
        Answer("RankNonCommHang", "1", "data_loading", "next_batch"),
        _busy_looking("logging_thread"),
    ),
    _row(
        "polls_and_prints",
        "rank 2 prints twice a second while it waits for a file that never comes",
        Answer("RankNonCommHang", "2", "python_loop", "wait_for_marker"),
        _busy_looking("polling", "--rank=2", "--step-time=0.2", "--at=20"),
    ),
    _row(
        "polls_often",
        "rank 0 prints twenty times a second while it waits for a file that never comes",
        Answer("RankNonCommHang", "0", "python_loop", "wait_for_marker"),
        _busy_looking("polling", "--rank=0", "--poll=0.05"),
        ranks=2,
    ),
    _row(
        "spins",
        "rank 0 spins in a Python loop",
        Answer("RankNonCommHang", "0", "python_loop", "wait_until_ready"),
        _busy_looking("spinning", "--rank=0"),
    ),
    _row(
        "victims_spin",
        "rank 1 waits for a message; the ranks that wait for it spin, as with CUDA and NCCL",
        Answer("RankNonCommHang", "1", "lock", "wait_for_peer"),
        _busy_looking("message", "--spin"),
    ),
    _row(
        "all_spin",
        "rank 1 spins in a Python loop and so do the ranks that wait for it",
        Answer("RankNonCommHang", "1", "python_loop", "wait_until_ready"),
        _busy_looking("spinning", "--spin"),
        ranks=2,
    ),
    _row(
        "store_key",
        "all ranks wait for a key that nobody writes to the store",
        Answer("RankNonCommHang", "-", "store_wait", "wait_for_settings"),
        _busy_looking("store_key", "--rank=-1"),
        ranks=4,
    ),
    _row(
        "answers_signals",
        "rank 0 answers a signal twice a second and goes on waiting for a message",
        Answer("RankNonCommHang", "0", "lock", "wait_for_peer"),
        _busy_looking("signals", "--rank=0", "--step-time=0.05", "--at=60"),
        ranks=2,
    ),
    _row(
        "exit_thread",
        "all ranks have finished, rank 0 keeps a thread that never ends",
        Answer("RankNonCommHang", "0", "exit", "upload_metrics"),
        program("exit_hang.py", "--keeps=thread"),
        flags=_EXIT,
    ),
    _row(
        "exit_child",
        "all ranks have finished, rank 1 waits for a child process that never ends",
        Answer("RankNonCommHang", "1", "child_process", "stop_tracker"),
        program("exit_hang.py", "--keeps=child", "--rank=1"),
        ranks=2,
        flags=_EXIT,
    ),
)
