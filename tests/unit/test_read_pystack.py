"""The reader of pystack's text."""

from __future__ import annotations

from tests.reading_factory import functions, one_dump, read, real


def test_a_real_dump_is_turned_leaf_first_and_keeps_the_text_of_its_lines() -> None:
    dump = one_dump(real("dataloader_worker_sleep", "rank1.pystack.txt"))
    feeder, main = dump.threads
    assert (dump.source, dump.pid) == ("pystack", 9074)
    assert (main.thread_id, main.name, main.is_main, feeder.is_main) == (9074, "python", True, False)
    assert functions(main) == ["all_reduce", "wrapper", "_dl", "dataloader_worker_sleep", "<module>"]
    assert (main.frames[0].line, main.frames[0].source) == (3252, "work.wait()")
    assert main.frames[2].source == "dist.all_reduce(loss)"
    assert (main.holds_gil, main.collecting) == (False, False)


def test_native_frames_are_merged_in_and_inlined_ones_lose_the_word() -> None:
    main = one_dump(real("ddp_backward", "rank1.pystack_native.txt")).threads[0]
    assert functions(main)[:5] == [
        "clock_nanosleep@GLIBC_2.2.5",
        "pysleep",
        "time_sleep",
        "validate",
        "ddp_backward",
    ]
    assert (main.frames[1].kind, main.frames[1].file, main.frames[1].line) == (
        "native",
        "./Modules/timemodule.c",
        2159,
    )
    assert main.frames[-1].file == "/usr/local/bin/python3.11"  # the library where the source is ???


def test_threads_without_python_frames_are_kept_beside_the_main_thread() -> None:
    dump = one_dump(real("ddp_backward", "rank1.pystack_native_all.txt"))
    assert [thread.name for thread in dump.threads] == [
        "python",
        "pt_gloo_runloop",
        "pt_gloo_runloop",
        "gloo_tcp_loop",
    ]
    assert [thread.is_main for thread in dump.threads] == [True, False, False, False]


def test_local_variables_go_to_their_frames() -> None:
    main = one_dump(real("dataloader_worker_sleep", "rank1.pystack_locals.txt")).threads[1]
    by_frame = {one.frame: dict(one.values) for one in main.variables}
    assert sorted(by_frame) == [0, 1, 2]
    assert by_frame[0]["async_op"] == "False"
    assert by_frame[2]["i"] == "4"
    assert main.frames[2].source == "dist.all_reduce(loss)"


def test_values_with_line_ends_are_put_together() -> None:
    (thread,) = one_dump("""
        Traceback for thread 7499 (python) [] (most recent call last):
            (Python) File "/tmp/t.py", line 10, in work
                time.sleep(60)
              Arguments:
                n: 3
              Locals:
                q: b"ab
        cd"
                s: "line1
            (idle) line2 (idle)"
                f: 1.5
        """).threads
    assert thread.variables[0].values == (
        ("n", "3"),
        ("q", 'b"ab\ncd"'),
        ("s", '"line1\n    (idle) line2 (idle)"'),
        ("f", "1.5"),
    )


def test_flags_tell_who_holds_the_gil_and_who_collects_garbage() -> None:
    frame = '    (Python) File "a.py", line 1, in f\n'
    flags = ["Has the GIL", "Has the GIL,Garbage collecting", "Waiting for the GIL", ""]
    text = "\n".join(
        f"Traceback for thread {at} (python) [{flag}] (most recent call last):\n{frame}"
        for at, flag in enumerate(flags, 1)
    )
    threads = one_dump(text).threads
    assert [thread.holds_gil for thread in threads] == [True, True, False, False]
    assert [thread.collecting for thread in threads] == [False, True, False, False]


def test_a_header_without_a_name_is_read() -> None:
    dump = one_dump(real("dstate", "rank1.child10558.pystack.txt"))
    assert [(thread.thread_id, thread.name, thread.holds_gil) for thread in dump.threads] == [
        (10463, None, True)
    ]
    assert dump.threads[0].frames[0].source.startswith('os.posix_spawn("/bin/true"')


def test_runs_on_several_processes_in_one_file_are_taken_apart() -> None:
    one = real("dataloader_worker_sleep", "rank1.pystack.txt")
    two = real("dataloader_worker_sleep", "rank2.pystack.txt")
    for between in (b"", b"\n", b"=== rank 2 ===\n"):
        first, second = read(one + between + two).dumps
        assert [thread.is_main for thread in first.threads] == [False, True]
        assert (first.pid, second.pid) == (9074, second.threads[-1].thread_id)
        assert second.threads[-1].is_main


def test_a_thread_without_a_stack_and_interpreters_are_read() -> None:
    dump = one_dump("""
        The frame stack for thread 12 is empty

        Traceback for thread 11 (python) (most recent call last):
          In the main interpreter [Has the GIL]
            (Python) File "a.py", line None, in <module>
        """)
    assert [(thread.thread_id, len(thread.frames)) for thread in dump.threads] == [(12, 0), (11, 1)]
    assert dump.threads[1].holds_gil
    assert dump.threads[1].is_main
    assert dump.threads[1].frames[0].line == 0


def test_native_frames_that_pystack_could_not_place_are_told_as_missing() -> None:
    contents = read("""
        Traceback for thread 11 (python) [] (most recent call last):
        * - Unable to merge native stack due to insufficient native information - *
            (Python) File "a.py", line 3, in <module>
        """)
    assert len(contents.dumps[0].threads[0].frames) == 1
    assert list(contents.problems) == ["pystack could not tell where native frames belong: it left them out"]


def test_a_dump_cut_in_the_middle_of_a_line_never_shows_a_whole_main_thread() -> None:
    whole = real("ddp_backward", "rank0.pystack.txt").rstrip(b"\n")
    missed: list[int] = []
    for size in range(1, len(whole)):
        threads = [thread for dump in read(whole[:size]).dumps for thread in dump.threads if thread.is_main]
        torn = not whole[:size].endswith(b"\n") and whole[size : size + 1] != b"\n"
        if torn and any(not thread.is_cut for thread in threads):
            missed.append(size)
    # A statement may end where the text was cut: `f()` of `f().g()`.
    assert len(missed) <= len(whole) // 50
    assert not any(thread.is_cut for dump in read(whole + b"\n").dumps for thread in dump.threads)
