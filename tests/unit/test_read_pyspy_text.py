"""The reader of py-spy's text."""

from __future__ import annotations

from tests.reading_factory import functions, one_dump, read, real


def test_a_real_dump_gives_its_process_and_its_threads_leaf_first() -> None:
    dump = one_dump(real("lock_blocked", "rank1.pyspy.txt"))
    assert (dump.source, dump.pid, dump.line) == ("py-spy", 9456, 1)
    assert dump.title == "/opt/venv/bin/python /workspace/scen.py lock_blocked"
    main, writer = dump.threads
    assert (main.name, main.thread_id, main.is_main, main.active) == ("MainThread", 9456, True, False)
    assert functions(main) == ["lock_blocked.<locals>.guarded", "lock_blocked", "<module>"]
    assert (main.frames[0].file, main.frames[0].line) == ("scen.py", 85)
    assert (writer.name, writer.is_main) == ("CheckpointWriter", False)
    assert not dump.is_native
    assert not dump.has_variables


def test_native_frames_keep_their_symbols_whole() -> None:
    dump = one_dump(real("dataloader_worker_sleep", "rank1.pyspy_native.txt"))
    main = next(thread for thread in dump.threads if thread.is_main)
    kinds = [frame.kind for frame in main.frames]
    assert kinds == ["native"] * 6 + ["python"] * 5 + ["native"]
    assert functions(main)[2:4] == ["std::condition_variable::wait", "c10d::Work::wait"]
    assert main.frames[4].function.startswith("pybind11::cpp_function::initialize<")
    assert main.frames[4].function.endswith("::_FUN")
    assert main.frames[4].file == "libtorch_python.so"
    assert dump.is_native


def test_frames_of_c_files_with_lines_are_native_too() -> None:
    (thread,) = one_dump("""
        Thread 5 (active): "MainThread"
            do_wait (futex-internal.c:57)
            step (train.py:3)
            <module> (<string>:1)
        """).threads
    assert [frame.kind for frame in thread.frames] == ["native", "python", "python"]


def test_a_dump_that_ends_in_its_first_thread_marks_it() -> None:
    head = 'Process 5: python t.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 5 (idle): "MainThread"\n'
    for end, frames in (("", 0), ("    all_reduce (torch/d.py:3)\n    step (tra", 1)):
        contents = read(head + end)
        ((thread,),) = [dump.threads for dump in contents.dumps]
        assert (thread.is_main, thread.is_cut, len(thread.frames)) == (True, True, frames)
        assert any("its last stack was cut off" in problem for problem in contents.problems)


def test_local_variables_go_to_their_frames() -> None:
    dump = one_dump(real("dataloader_worker_sleep", "rank1.pyspy_locals.txt"))
    main = next(thread for thread in dump.threads if thread.is_main)
    assert dump.has_variables
    assert functions(main) == [
        "all_reduce",
        "_exception_logger.<locals>.wrapper",
        "_dl",
        "dataloader_worker_sleep",
        "<module>",
    ]
    by_frame = {one.frame: dict(one.values) for one in main.variables}
    assert sorted(by_frame) == [0, 1, 2]
    assert by_frame[0]["async_op"] == "False"
    assert by_frame[0]["work"] == "<torch._C._distributed_c10d.Work at 0x7fe6816192b0>"
    assert by_frame[2]["nw"] == "1"


def test_a_value_that_looks_like_a_header_is_a_value() -> None:
    (thread,) = one_dump("""
        Process 5: python train.py
        Python v3.11.7 (/usr/bin/python3.11)

        Thread 5 (idle): "MainThread"
            work (t.py:10)
                Locals:
                    s: "line1\\nThread 6 (idle)"
                    d: {"a": 1, "b (c.py:3)": 2}
            <module> (t.py:12)
        """).threads
    assert functions(thread) == ["work", "<module>"]
    assert thread.variables[0].values == (
        ("s", r'"line1\nThread 6 (idle)"'),
        ("d", '{"a": 1, "b (c.py:3)": 2}'),
    )


def test_line_ends_in_the_command_line_and_in_a_thread_s_name_are_kept() -> None:
    dump = one_dump("""
        Process 7497: python -c import time

        def work():
            time.sleep(60)
        work()
        Python v3.11.7 (/usr/bin/python3.11)

        Thread 7497 (idle): "MainThread"
            work (<string>:4)
            <module> (<string>:5)
        Thread 7499 (idle): "wei"rd
        name"
            _bootstrap (threading.py:982)
        """)
    assert dump.pid == 7497
    assert dump.title == "python -c import time\n\ndef work():\n    time.sleep(60)\nwork()"
    assert [thread.name for thread in dump.threads] == ["MainThread", 'wei"rd\nname']
    assert [len(thread.frames) for thread in dump.threads] == [2, 1]


def test_subprocesses_are_processes_of_their_own_with_their_parent() -> None:
    contents = read("""
        Process 30295: python t2.py
        Python v3.11.7 (/usr/bin/python3.11)

        Thread 30295 (idle): "MainThread"
            <module> (t2.py:6)

        --------------------------------------------------------------------------------
        Process 30298: ray::WorkerDict.train
        Python v3.11.7 (/usr/bin/python3.11)
        Parent Process 30295: python t2.py

        Thread 30298 (active+gil): "MainThread"
            <module> (t2.py:5)
        """)
    assert not contents.problems
    assert [(dump.pid, dump.parent, dump.title, dump.line) for dump in contents.dumps] == [
        (30295, 0, "python t2.py", 1),
        (30298, 30295, "ray::WorkerDict.train", 8),
    ]
    assert [thread.holds_gil for dump in contents.dumps for thread in dump.threads] == [None, True]


def test_a_header_without_a_name_and_a_hexadecimal_id_are_read() -> None:
    dump = one_dump("""
        Thread 4076 (idle)
        Thread 0x7F23425E5B80 (active)
            loop (a.py:3)
            <module> (a.py:9)
        """)
    assert [(thread.thread_id, thread.name) for thread in dump.threads] == [(4076, None), (0, None)]
    assert [thread.is_main for thread in dump.threads] == [False, True]


def test_a_child_that_shows_its_parent_s_thread_ids_still_has_a_main_thread() -> None:
    dump = one_dump(real("dstate", "rank1.child10558.pyspy.txt"))
    assert (dump.pid, [thread.is_main for thread in dump.threads]) == (10558, [True])
    assert dump.threads[0].holds_gil


def test_a_process_without_threads_has_a_reason() -> None:
    (dump,) = read(real("sigstop", "rank1.pyspy.txt")).dumps
    assert (dump.pid, dump.threads) == (9698, ())
    assert dump.trouble


def test_a_second_dump_of_the_same_process_is_a_dump_of_its_own() -> None:
    raw = real("ddp_backward", "rank1.pyspy.txt")
    first, second = read(raw + raw).dumps
    assert (first.threads, first.pid) == (second.threads, second.pid)
    assert (first.line, second.line) == (1, 8)


def test_a_word_in_brackets_in_a_log_is_no_frame() -> None:
    contents = read("""
        Thread 5 (idle): "MainThread"
            <module> (t2.py:6)
        Epoch 3 done (train.py:12)
        """)
    assert [functions(thread) for dump in contents.dumps for thread in dump.threads] == [["<module>"]]


def test_a_dump_cut_in_the_c_frames_of_its_only_thread_says_so() -> None:
    text = """
        Process 12: python train.py
        Python v3.11.7 (/usr/bin/python3.11)

        Thread 12 (idle): "MainThread"
            poll (libc.so.6)
            c10d::TCPStore::doWait (torch/lib/libtorch_cpu.so)
    """
    (thread,) = read(text).dumps[0].threads
    assert thread.is_cut
    (whole,) = read(text.rstrip() + "\n            main (python3.11)\n").dumps[0].threads
    assert not whole.is_cut
