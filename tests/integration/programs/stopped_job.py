"""A worker without torch that is stopped from outside: ``stopped_job.py MODE [MODE of rank 1 ...]``.

``train`` reports steps, ``wait`` does nothing, ``deaf`` does nothing and ignores SIGTERM, ``polite`` ends on
SIGTERM and says so, ``fail`` exits with 1 on it, ``crash`` exits with 7 once the file ``crash`` appears
beside the folder it is told, ``done`` ends once the file ``done`` appears. Every rank prints ``rank N is up``
when it has set itself up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

POLL = 0.02


def train() -> None:
    """Report a step every now and then, for ever."""
    from rankscope.watchdog import job_monitor as jm

    monitor = jm.Monitor()
    step = 0
    while True:
        monitor.step(step)
        step += 1
        time.sleep(POLL)


def end_politely(_number: int, _frame: FrameType | None) -> None:
    """Say that the signal came, and end."""
    print("ended by itself", flush=True)
    os._exit(0)


def end_with_an_error(_number: int, _frame: FrameType | None) -> None:
    """The signal came, and the program calls that an error."""
    os._exit(1)


def wait_for(name: str) -> None:
    """Wait for a file in the folder that the test names."""
    path = Path(os.environ["TEST_FOLDER"], name)
    while not path.exists():
        time.sleep(POLL)


def main() -> None:
    """Do what the mode of this rank says."""
    modes = sys.argv[1:]
    rank = int(os.environ["RANK"])
    mode = modes[min(rank, len(modes) - 1)]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the worker's own
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "polite":
        signal.signal(signal.SIGTERM, end_politely)
    if mode == "fail":
        signal.signal(signal.SIGTERM, end_with_an_error)
    print(f"rank {rank} is up", flush=True)
    if mode in ("train", "fail"):
        train()
    elif mode == "crash":
        wait_for("crash")
        os._exit(7)
    elif mode == "done":
        wait_for("done")
    else:
        threading.Event().wait()


if __name__ == "__main__" or "RANK" in os.environ:
    main()
