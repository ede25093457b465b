"""The reader of faulthandler's tracebacks."""

from __future__ import annotations

import faulthandler
import sys
import threading
from pathlib import Path

import pytest
from tests.reading_factory import functions, one_dump, read, real


def test_a_real_dump_gives_its_threads_and_finds_the_main_one() -> None:
    dump = one_dump(real("dataloader_worker_sleep", "rank1.faulthandler.txt"))
    feeder, main = dump.threads
    assert (dump.source, dump.pid) == ("faulthandler", 0)
    assert functions(main) == ["all_reduce", "wrapper", "_dl", "dataloader_worker_sleep", "<module>"]
    assert (main.frames[0].line, main.frames[0].kind) == (3252, "python")
    assert (main.is_main, feeder.is_main) == (True, False)
    assert (main.thread_id, main.active, feeder.active) == (0, None, None)


def test_a_main_thread_at_the_end_of_the_interpreter_is_found() -> None:
    dump = one_dump(real("exit_hang", "rank1.faulthandler.txt"))
    main = next(thread for thread in dump.threads if thread.is_main)
    assert functions(main) == ["_shutdown"]


def test_this_python_s_own_dump_is_read(tmp_path: Path) -> None:
    wanted, go = threading.Event(), threading.Event()

    def waiting_thread() -> None:
        wanted.set()
        go.wait(20)

    thread = threading.Thread(target=waiting_thread)
    thread.start()
    assert wanted.wait(20)
    with (tmp_path / "dump").open("w+b") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        (dump,) = read(file.read()).dumps
    go.set()
    thread.join()
    assert len(dump.threads) >= 2
    (other,) = [one for one in dump.threads if "waiting_thread" in functions(one)]
    assert not other.is_main
    own = sys._getframe().f_code.co_name
    assert [one.frames[0].function == own for one in dump.threads].count(True) == 1


def test_in_the_middle_of_a_log_only_its_own_lines_are_taken() -> None:
    contents = read("""
        step 12 loss 2.5
        Timeout (0:00:05)!
        Thread 0x00007ff61962bb80 (most recent call first):
          File "train.py", line 3 in step
        step 13 loss 2.4
          File "train.py", line 9 in <module>
        Traceback (most recent call last):
          File "train.py", line 9, in <module>
        ValueError: no
        """)
    (dump,) = contents.dumps
    assert (dump.line, functions(dump.threads[0])) == (3, ["step", "<module>"])


def test_repeated_timeouts_are_dumps_of_their_own() -> None:
    once = (
        'Timeout (0:00:05)!\nThread 0x0000000000000001 (most recent call first):\n  File "a", line 1 in f\n'
    )
    assert [dump.line for dump in read(once * 3).dumps] == [2, 5, 8]


def test_a_fatal_error_and_its_list_of_modules_are_no_frames() -> None:
    contents = read("""
        Fatal Python error: Segmentation fault

        Thread 0x00007f0000000002 (most recent call first):
          File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

        Current thread 0x00007f0000000001 (most recent call first):
          <no Python frame>

        Extension modules: numpy._core, torch._C (total: 2)
        """)
    (dump,) = contents.dumps
    assert [len(thread.frames) for thread in dump.threads] == [1, 0]
    assert [thread.is_main for thread in dump.threads] == [False, False]


def test_names_garbage_collection_and_unknown_places_are_read() -> None:
    dump = one_dump("""
        Thread 0x0000000000000002 [gc-thread] (most recent call first):
          Garbage-collecting
          File "a b.py", line 12 in <lambda>
          File ???, line ??? in ???

        Stack (most recent call first):
          File "b.py", line 3 in <module>
        """)
    collecting, alone = dump.threads
    assert (collecting.name, collecting.collecting, alone.collecting) == ("gc-thread", True, None)
    assert [(frame.file, frame.line) for frame in collecting.frames] == [("a b.py", 12), ("???", 0)]
    assert alone.is_main


def test_the_c_stack_of_python_3_14_is_a_stack_of_its_own() -> None:
    dump = one_dump("""
        Current thread 0x0000000000000001 [python] (most recent call first):
          File "a.py", line 3 in <module>

        Current thread's C stack trace (most recent call first):
          Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x21 [0x62f1]
          Binary file "/lib/libc.so.6", at +0x3d [0x7f00]
        """)
    python, native = dump.threads
    assert (functions(python), python.is_main, native.is_main) == (["<module>"], True, False)
    assert [(frame.function, frame.kind) for frame in native.frames] == [
        ("_Py_DumpStack", "native"),
        ("0x7f00", "native"),
    ]


def test_frames_that_faulthandler_left_out_are_told_and_the_last_thread_is_the_main_one() -> None:
    contents = read("""
        Thread 0x02 (most recent call first):
          File "a", line 1 in f
          File "threading.py", line 9 in _bootstrap

        Thread 0x01 (most recent call first):
          File "a", line 1 in f
          ...
        """)
    assert [(thread.is_main, thread.is_cut) for thread in contents.dumps[0].threads] == [
        (False, False),
        (True, True),
    ]
    (problem,) = contents.problems
    assert "100 frames" in problem


def test_threads_that_faulthandler_left_out_are_told_and_none_of_the_others_is_the_main_one() -> None:
    contents = read("""
        Thread 0x01 (most recent call first):
          File "a", line 1 in f
          File "threading.py", line 9 in _bootstrap
        ...
        """)
    assert [(thread.is_main, thread.is_cut) for thread in contents.dumps[0].threads] == [(False, False)]
    assert any("100 threads" in problem for problem in contents.problems)
    assert any("no main thread" in problem for problem in contents.problems)


@pytest.mark.parametrize("end", ["", '  File "a", line 1 in f\n', '  File "a", line 1 in f\n  File "b", li'])
def test_a_dump_that_ends_in_a_thread_marks_it_and_takes_it_for_no_main_thread(end: str) -> None:
    contents = read(
        'Thread 0x02 (most recent call first):\n  File "t.py", line 9 in _bootstrap\n\n'
        f"Thread 0x01 (most recent call first):\n{end}"
    )
    assert [(thread.is_main, thread.is_cut) for thread in contents.dumps[0].threads] == [
        (False, False),
        (False, True),
    ]
    assert any("its last stack was cut off" in problem for problem in contents.problems)
    assert any("no main thread" in problem for problem in contents.problems)


def test_several_processes_without_a_word_between_them_are_taken_apart() -> None:
    raw = [real("ddp_backward", f"rank{rank}.faulthandler.txt") for rank in range(3)]
    raw.insert(1, real("dataloader_worker_sleep", "rank1.faulthandler.txt"))
    dumps = read(b"".join(raw)).dumps
    assert [len(dump.threads) for dump in dumps] == [1, 2, 1, 1]
    assert all(sum(thread.is_main for thread in dump.threads) == 1 for dump in dumps)
