"""The end of a log: which exception ended the process, which did not, what C++ said. The logs are real."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadline import DEADLINE
from tests.failures_factory import an_end

from rankscope.agent.failures.last_words import LogWords, last_words
from rankscope.agent.failures.telling import tell

CAUGHT = "import traceback, os, sys\ntry:\n 1/0\nexcept Exception: traceback.print_exc()\n"
THREAD = "import threading as t, os\nx = t.Thread(target=lambda: 1/0)\nx.start(); x.join()\n"
DELETED = "class A:\n def __del__(self): raise KeyError('d')\na = A()\n"
MISUSED = "import logging\nlogging.warning('%d', 'a')\n"
MAIN = "raise ValueError('main')"
PROGRAMS = [
    ("raise ValueError('a')", "ValueError: a"),
    ("try:\n 1/0\nexcept Exception as e:\n raise RuntimeError('b') from e", "RuntimeError: b"),
    ("try:\n 1/0\nexcept Exception:\n raise RuntimeError('b')", "RuntimeError: b"),
    ("raise RuntimeError('first\\nsecond 17\\n\\nthird')", "RuntimeError: first"),
    ("def f(n): return f(n)\nf(1)", "RecursionError: maximum recursion depth exceeded"),
    (DELETED + MAIN, "ValueError: main"),
    ("import atexit\natexit.register(lambda: 1/0)\n" + MAIN, "ValueError: main"),
    (MISUSED + "raise SystemExit(4)", "ended with exit code 4"),
    (MISUSED + MAIN, "ValueError: main"),
    (THREAD + MAIN, "ValueError: main"),
    (THREAD + "os._exit(3)", "ZeroDivisionError: division by zero"),
    ("import sys\nsys.exit('fatal: no configuration')", "fatal: no configuration"),
    (
        "import argparse as a\na.ArgumentParser(prog='t').parse_args(['-x'])",
        "t: error: unrecognized arguments: -x",
    ),
    ("def f(:", "SyntaxError: invalid syntax"),
    ("import sys\nsys.exit(7)", "ended with exit code 7"),
    ("import os\nos.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ("import os\nos.kill(os.getpid(), 15)", "ended by SIGTERM"),
    (
        "import faulthandler as f, ctypes\nf.enable()\nctypes.string_at(0)",
        "killed by SIGSEGV (segmentation fault)",
    ),
    ("import faulthandler as f, os\nf.enable()\nos.abort()", "killed by SIGABRT (aborted)"),
    (CAUGHT + "os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    (CAUGHT + "print('on\\n' * 200, file=sys.stderr)\nsys.exit(5)", "ended with exit code 5"),
]


def run(folder: Path, program: str) -> tuple[int, LogWords]:
    """The exit code of a real process, and what its standard error says."""
    script = folder / "train.py"
    script.write_text(program)
    command = [sys.executable, "-S", str(script)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=DEADLINE)
    return done.returncode, last_words(done.stderr)


def message(folder: Path, program: str) -> str:
    code, words = run(folder, program)
    return tell(an_end(0, code=code), None, words).message


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_what_ended_a_process(tmp_path: Path, program: str, expected: str) -> None:
    assert message(tmp_path, program) == expected


def test_the_users_innermost_frame_is_known(tmp_path: Path) -> None:
    _, words = run(tmp_path, "import json\ndef load():\n    json.loads('{')\nload()")
    assert words.frame is not None
    assert (words.frame.function, words.frame.line) == ("load", 3)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_a_group_of_exceptions_is_read(tmp_path: Path) -> None:
    group = "raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])"
    assert message(tmp_path, group).startswith("ExceptionGroup: two")


WATCHDOG = (
    "[rank3]:[E1130 08:11:47.41 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7)\n"
    "[rank3]:[E1130 08:11:47.42 ProcessGroupNCCL.cpp:684] [Rank 3] Some NCCL operations have failed or "
    "timed out.\n"
    "[rank3]:[E1130 08:11:47.43 ProcessGroupNCCL.cpp:698] [Rank 3] we are taking the entire process down.\n"
)


def test_of_a_watchdogs_lines_the_first_is_the_message() -> None:
    words = tell(an_end(3, code=-signal.SIGABRT), None, last_words(WATCHDOG))
    assert words.message == "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"
    assert words.is_aftermath


def test_what_the_watchdog_died_of_says_more_than_the_watchdog() -> None:
    text = WATCHDOG + (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG 0] watchdog thread terminated with exception: CUDA error: uncorrectable ECC error\n"
        "Fatal Python error: Aborted\n"
    )
    words = tell(an_end(3, code=-6), None, last_words(text))
    assert words.message.endswith("CUDA error: uncorrectable ECC error")
    assert (words.is_aftermath, words.retryable) == (False, True)


def test_what_a_library_said_long_ago_is_not_the_reason() -> None:
    warning = "n1:7:9 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer\n"
    assert tell(an_end(0, code=1), None, last_words(warning + "at work\n" * 30)).source == "log"
    assert tell(an_end(0, code=1), None, last_words(warning + "at work\n" * 3000)).source == "exit code"


def test_an_exception_before_an_abort_is_the_cause() -> None:
    head = 'Traceback (most recent call last):\n  File "/w/t.py", line 1\n'
    text = head + "ValueError: bad\nfree(): invalid pointer\n"
    assert tell(an_end(0, code=-6), None, last_words(text)).message == "ValueError: bad"


def test_the_ooms_victim_says_so_if_anybody_did() -> None:
    text = "step 3\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n"
    words = tell(an_end(0, code=-9), None, last_words(text))
    assert words.message == "killed by SIGKILL: slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."
    assert not words.retryable


def test_a_launchers_exception_says_less_than_its_workers() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/w/t.py", line 1, in f\nValueError: bad\n'
        'Traceback (most recent call last):\n  File "/x/torchrun", line 8, in <module>\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    assert last_words(text).raised == "ValueError: bad"


def test_a_traceback_that_rich_draws_is_read() -> None:
    text = (
        "╭──── Traceback (most recent call last) ────╮\n"
        + "│ x = 1 │\n" * 60
        + "╰───────╯\nValueError: bad\n"
    )
    assert last_words(text).raised == "ValueError: bad"


def test_a_bar_before_a_traceback_is_no_hindrance() -> None:
    bar = "\r  4%|4   | 1/23 [00:07<02:39,  7.23s/it]"
    text = bar + 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\n'
    assert last_words(text).raised == "ValueError: x"


@pytest.mark.parametrize(
    "text", ["", "\n", "\0" * 100, "Traceback (most recent call last)", "what(): ", "\r\r\n"]
)
def test_a_log_that_says_nothing_is_no_trouble(text: str) -> None:
    assert last_words(text).raised == ""
