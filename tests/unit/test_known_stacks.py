"""A dump of py-spy is read the same whether its stacks were seen before or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.diag.read import Read, pyspy
from rankscope.diag.read.known_stacks import KnownStacks
from rankscope.diag.read.pyspy import parse_pyspy_json

REAL = sorted((Path(__file__).parents[1] / "data" / "stacks").glob("*/rank*.pyspy*.json"))


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "_KNOWN", KnownStacks[object]())


def thread(tid: int, frames: object) -> dict[str, object]:
    return {"pid": 1, "os_thread_id": tid, "thread_name": "MainThread", "frames": frames}


def frame(line: int) -> dict[str, object]:
    return {"name": "step", "filename": "train.py", "line": line}


def read(*threads: object, **layout: int) -> Read:
    return parse_pyspy_json(json.dumps(threads, **layout).encode(), pid=1)  # type: ignore[arg-type]  # indent


@pytest.mark.parametrize("file", REAL, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_real_dump_is_read_the_same_again(file: Path) -> None:
    data = file.read_bytes()
    first = parse_pyspy_json(data, pid=0)
    assert parse_pyspy_json(data, pid=0) == first
    if first.threads and not first.problems:
        taken = pyspy._KNOWN.take_out(data)
        assert taken is not None
        assert len(taken[1]) == len(first.threads)
        assert len(taken[0]) < len(data) / 2


@pytest.mark.parametrize("indent", [None, 2])
def test_what_differs_is_of_its_own_dump(indent: int | None) -> None:
    layout = {} if indent is None else {"indent": indent}
    read(thread(1, [frame(1)]), thread(2, [frame(2)]), **layout)
    again = read(thread(5, [frame(1)]), thread(6, [frame(2)]), **layout)
    assert [(one.thread_id, one.frames[0].line) for one in again.threads] == [(5, 1), (6, 2)]
    other = read(thread(1, [frame(2)]), thread(2, [frame(9)]), **layout)
    assert [one.frames[0].line for one in other.threads] == [2, 9]


def test_a_dump_that_was_cut_or_is_no_dump_is_read_as_ever() -> None:
    whole = json.dumps([thread(1, [frame(1)]), thread(2, [frame(2)])]).encode()
    parse_pyspy_json(whole, pid=1)
    for cut in range(len(whole)):
        assert parse_pyspy_json(whole[:cut], pid=1).problems
    assert [one.frames for one in read(thread(1, 0), thread(2, [frame(1)])).threads] == [
        (),
        parse_pyspy_json(whole, pid=1).threads[0].frames,
    ]


@pytest.mark.parametrize("frames", [0, 1, "0", None, "x" * 40, {"frames": []}, 10**30])
def test_frames_that_are_none_are_a_problem_also_beside_known_ones(frames: object) -> None:
    known = thread(1, [frame(1)])
    read(known)
    again = read(known, {**thread(2, []), "other": {"frames": [frame(1)]}}, thread(3, frames))
    assert len(again.problems) == 1
    assert [len(one.frames) for one in again.threads] == [1, 0, 0]


def test_a_number_of_a_million_digits_is_no_stack() -> None:
    data = b'[{"os_thread_id": 1, "frames": ' + b"9" * 1_000_000 + b"}]"
    assert parse_pyspy_json(data, pid=1).problems


def test_the_key_inside_of_a_text_is_no_key() -> None:
    known = [frame(1)]
    read(thread(1, known))
    name = '"frames": ' + json.dumps(known)
    (one,) = read({**thread(1, known), "thread_name": name}).threads
    assert (one.name, one.frames[0].line) == (name, 1)


def test_what_is_remembered_is_bounded() -> None:
    known = KnownStacks[int]()
    for at in range(1_000):
        known.learn(at, b"[%d]" % at, at)
        known.learn(0, b"[7,%d]" % at, at)
    known.learn(1, b"x" * 1_000_000, 1)
    assert sum(map(len, known._by_place)) < 300
    assert known.take_out(b'{"frames":[7,999]}') == (b'{"frames":0}', [999])
    assert known.take_out(b'{"frames":[7,1]}') is None
