"""The reader of gdb's backtraces."""

from __future__ import annotations

import pytest
from tests.reading_factory import functions, one_dump, read, real

from rankscope.diag.read.gdb_frames import native_frame


def test_a_real_backtrace_of_all_threads_is_read() -> None:
    dump = one_dump(real("ddp_backward", "rank1.gdb.txt"))
    assert (dump.source, dump.pid, dump.is_native) == ("gdb", 31107, True)
    assert [(thread.thread_id, thread.name) for thread in dump.threads] == [
        (31118, "pt_gloo_runloop"),
        (31117, "pt_gloo_runloop"),
        (31110, "gloo_tcp_loop"),
        (31107, "python"),
    ]
    assert [thread.is_main for thread in dump.threads] == [False, False, False, True]
    main = dump.threads[3]
    assert len(main.frames) == 24
    assert functions(main)[:3] == ["__GI___clock_nanosleep", "pysleep", "time_sleep"]
    assert (main.frames[1].file, main.frames[1].line) == ("./Modules/timemodule.c", 2159)
    assert "c10d::ProcessGroupGloo::runLoop(int)" in functions(dump.threads[0])


def test_python_s_own_backtrace_is_read_with_calls_of_c_functions() -> None:
    dump = one_dump(real("lock_blocked", "rank1.gdb_pybt.txt"))
    assert [len(thread.frames) for thread in dump.threads] == [5, 0, 0, 0, 4]
    main = dump.threads[4]
    assert (main.thread_id, main.is_main, dump.pid) == (31051, True, 31051)
    assert functions(main) == [
        "<built-in method __enter__ of _thread.lock object>",
        "guarded",
        "lock_blocked",
        "<module>",
    ]
    assert main.frames[1].source == "with L:"
    assert not dump.is_native


def test_both_backtraces_of_one_process_are_one_dump() -> None:
    both = real("lock_blocked", "rank1.gdb.txt") + real("lock_blocked", "rank1.gdb_pybt.txt")
    text = b"".join(line for line in both.splitlines(keepends=True) if not line.startswith(b"[Inferior"))
    (dump,) = read(text).dumps
    assert len(dump.threads) == 5
    main = next(thread for thread in dump.threads if thread.is_main)
    python = [frame.function for frame in main.frames if frame.kind == "python"]
    assert python == ["guarded", "lock_blocked", "<module>"]
    names = functions(main)
    assert names.index("acquire_timed") < names.index("guarded") < names.index("_PyEval_EvalFrameDefault")
    alone = one_dump(real("lock_blocked", "rank1.gdb.txt")).threads[4]
    assert [frame for frame in main.frames if frame.kind == "native"] == list(alone.frames)


def test_python_frames_take_their_places_where_each_has_one() -> None:
    dump = one_dump("""
        Thread 1 (Thread 0x1 (LWP 7) "python"):
        #0  wait () from /lib/libtorch.so
        #1  0x01 in _PyEval_EvalFrameDefault (tstate=0x0) at Python/ceval.c:1
        #2  0x02 in backward () from /lib/libtorch.so
        #3  0x03 in _PyEval_EvalFrameDefault (tstate=0x0) at Python/ceval.c:1
        #4  0x04 in _start ()

        Thread 1 (Thread 0x1 (LWP 7) "python"):
        Traceback (most recent call first):
          File "hook.py", line 3, in hook
            work.wait()
          File "train.py", line 9, in <module>
            loss.backward()
        """)
    assert functions(dump.threads[0]) == [
        "wait",
        "hook",
        "_PyEval_EvalFrameDefault",
        "backward",
        "<module>",
        "_PyEval_EvalFrameDefault",
        "_start",
    ]


@pytest.mark.parametrize(
    "header",
    [
        'Thread 1 (Thread 0x7f51387c7b80 (LWP 31107) "python"):',
        "Thread 1 (Thread 0x7f51387c7b80 (LWP 31107)):",
        "Thread 1 (LWP 31107):",
        'Thread 1 (LWP 31107 "python"):',
        "Thread 1 (process 31107):",
        'Thread 1 (Thread 0x7f51387c7b80 (LWP 31107) "python (x)"):',
        'Thread 1 (Thread 0x7f51387c7b80 (LWP 31107) "python" (Exiting)):',
    ],
)
def test_new_and_old_headers_are_known(header: str) -> None:
    dump = one_dump(f"{header}\n#0  0x01 in poll () from /lib/libc.so.6\n#1  0x02 in main ()\n")
    assert (dump.pid, dump.threads[0].thread_id, dump.threads[0].is_main) == (31107, 31107, True)


def test_a_backtrace_without_a_header_is_one_thread() -> None:
    dump = one_dump("#0  0x01 in poll (fds=0x0) at poll.c:29\n#1  0x02 in main (argc=1) at a.c:3\n")
    assert [functions(thread) for thread in dump.threads] == [["poll", "main"]]


@pytest.mark.parametrize(
    ("text", "function", "file", "line"),
    [
        ("?? () from /lib/libstdc++.so.6", "??", "/lib/libstdc++.so.6", 0),
        ("_start ()", "_start", "", 0),
        ('f (s="a (b", n=1) at x.c:3', "f", "x.c", 3),
        (
            "std::function<void (int)>::operator()(int) const () from /lib/libtorch.so",
            "std::function<void (int)>::operator()(int) const",
            "/lib/libtorch.so",
            0,
        ),
        ("c10d::Work::wait (this=0x1, t=...) at /a/Work.cpp:120", "c10d::Work::wait", "/a/Work.cpp", 120),
        ("wait () from /lib/libtorch.so (deleted)", "wait", "/lib/libtorch.so (deleted)", 0),
        ("read (...) at io.c:7", "read", "io.c", 7),
    ],
)
def test_a_frame_is_taken_apart(text: str, function: str, file: str, line: int) -> None:
    frame = native_frame(text)
    assert (frame.function, frame.file, frame.line, frame.kind) == (function, file, line, "native")


def test_arguments_over_several_lines_and_local_variables_are_read() -> None:
    dump = one_dump("""
        Thread 1 (LWP 5):
        #0  0x01 in f (a={
            x = 1,
            y = 2}, b=3) at f.c:9
                n = 4
                name = 0x0
        #1  0x02 in main () at f.c:20
        No locals.
        """)
    (thread,) = dump.threads
    assert functions(thread) == ["f", "main"]
    assert (thread.frames[0].file, thread.frames[0].line) == ("f.c", 9)
    assert thread.variables[0].values == (("n", "4"), ("name", "0x0"))


def test_several_processes_in_one_file_are_taken_apart_even_without_the_last_word() -> None:
    raw = b"".join(real("ddp_backward", f"rank{rank}.gdb.txt") for rank in range(3))
    bare = b"".join(line for line in raw.splitlines(keepends=True) if not line.startswith(b"["))
    for text in (raw, bare):
        dumps = read(text).dumps
        assert len(dumps) == 3
        assert [sum(thread.is_main for thread in dump.threads) for dump in dumps] == [1, 1, 1]
        assert len({dump.pid for dump in dumps}) == 3
