"""The reader of py-spy's JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.diag.read.pyspy import parse_pyspy_dumps, parse_pyspy_json

DATA = Path(__file__).parents[1] / "data" / "stacks"


def dump_of(scenario: str, rank: int) -> tuple[bytes, int]:
    folder = DATA / scenario
    truth = json.loads((folder / "truth.json").read_text())
    return (folder / f"rank{rank}.pyspy.json").read_bytes(), truth["tools"][str(rank)]["pid"]


def test_a_real_dump_gives_its_threads_leaf_first() -> None:
    data, pid = dump_of("lock_blocked", 1)
    read = parse_pyspy_json(data, pid=pid)
    assert not read.problems
    main = next(thread for thread in read.threads if thread.is_main)
    assert main.thread_id == pid
    assert main.frames[0].function == "lock_blocked.<locals>.guarded"
    assert (main.frames[0].short_file, main.frames[0].line) == ("scen.py", 85)
    assert [thread.name for thread in read.threads] == ["CheckpointWriter", "MainThread"]


def test_the_owner_of_the_gil_is_kept_even_when_idle() -> None:
    data, pid = dump_of("gil_native", 1)
    holder = next(thread for thread in parse_pyspy_json(data, pid=pid).threads if thread.holds_gil)
    assert (holder.name, holder.active) == ("NativeHolder", False)


def test_the_main_thread_is_found_by_the_dump_s_own_pid_when_none_is_given() -> None:
    data, _ = dump_of("busy_loop", 3)
    assert [thread.is_main for thread in parse_pyspy_json(data, pid=0).threads] == [True]


def test_a_child_that_shows_its_parent_s_thread_ids_still_has_a_main_thread() -> None:
    data = json.dumps([{"pid": 9, "os_thread_id": 8, "thread_name": "MainThread", "frames": []}]).encode()
    assert parse_pyspy_json(data, pid=9).threads[0].is_main


def test_native_frames_are_kept_and_marked() -> None:
    frame = {"name": "c10d::Work::wait", "filename": "/x/libtorch_cpu.so", "module": "/x/libtorch_cpu.so"}
    data = json.dumps([{"pid": 1, "os_thread_id": 1, "frames": [{**frame, "line": 0}]}]).encode()
    (thread,) = parse_pyspy_json(data, pid=1).threads
    assert (thread.frames[0].kind, thread.frames[0].function) == ("native", "c10d::Work::wait")


def test_equal_stacks_of_two_ranks_are_the_same_object() -> None:
    first = parse_pyspy_json(dump_of("busy_loop", 0)[0], pid=0)
    second = parse_pyspy_json(dump_of("busy_loop", 1)[0], pid=0)
    assert first.threads[0].frames is second.threads[0].frames


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"Error: no such process", b"{}", b"[1, 2]", b"\xff\xfe[", b"[" * 5000]
)
def test_what_is_no_dump_gives_a_problem_and_no_thread(data: bytes) -> None:
    read = parse_pyspy_json(data, pid=1)
    assert read.threads == ()
    assert read.problems


def test_a_dump_that_was_cut_off_gives_its_whole_threads() -> None:
    data, pid = dump_of("lock_blocked", 1)
    read = parse_pyspy_json(data[:-400], pid=pid)
    assert [thread.name for thread in read.threads] == ["CheckpointWriter"]
    assert "not a complete list" in read.problems[0]


def test_a_thread_that_is_not_understood_does_not_cost_the_others() -> None:
    good = {"pid": 1, "os_thread_id": 1, "thread_name": "MainThread", "frames": []}
    data = json.dumps([{"frames": 3, "pid": "x"}, good, {"frames": "?", "os_thread_id": 2}]).encode()
    read = parse_pyspy_json(data, pid=1)
    assert [thread.thread_id for thread in read.threads] == [1, 2]
    assert len(read.problems) == 2


def test_local_variables_go_to_their_frames() -> None:
    values = [
        {"name": "dst", "addr": 1, "arg": True, "repr": "3"},
        {"name": "work", "addr": 16, "arg": False, "repr": None},
    ]
    frames = [{"name": "f", "locals": None}, {"name": "g", "locals": values}, {"name": "h", "locals": []}]
    data = json.dumps([{"pid": 1, "os_thread_id": 1, "frames": frames}]).encode()
    (thread,) = parse_pyspy_json(data, pid=1).threads
    assert [(one.frame, one.values) for one in thread.variables] == [
        (1, (("dst", "3"), ("work", "<at 0x10>")))
    ]


def test_variables_that_are_not_understood_are_told_and_cost_no_frame() -> None:
    data = json.dumps([{"os_thread_id": 1, "frames": [{"name": "f", "locals": 7}]}]).encode()
    read = parse_pyspy_json(data, pid=1)
    assert len(read.threads[0].frames) == 1
    assert "local variables not understood" in read.problems[0]


def test_a_list_of_several_processes_is_taken_apart() -> None:
    first, one = dump_of("busy_loop", 0)
    second, two = dump_of("lock_blocked", 1)
    dumps, problems = parse_pyspy_dumps(json.dumps([*json.loads(first), *json.loads(second)]).encode())
    assert not problems
    assert [(dump.pid, len(dump.threads)) for dump in dumps] == [(one, 1), (two, 2)]
    assert [sum(thread.is_main for thread in dump.threads) for dump in dumps] == [1, 1]


def test_the_process_that_a_thread_names_is_kept() -> None:
    process = {"pid": 5, "command_line": "ray::Worker", "parent": {"pid": 4, "command_line": "raylet"}}
    data = json.dumps([{"pid": 5, "os_thread_id": 5, "frames": [], "process_info": process}]).encode()
    ((dump,), _) = parse_pyspy_dumps(data)
    assert (dump.title, dump.parent) == ("ray::Worker", 4)
