"""The reader of py-spy's JSON never raises, whatever it is given."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diag.model import Frame
from rankscope.diag.read.pyspy import parse_pyspy_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["frames", "pid", "os_thread_id", "name", "line", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
FRAMES = st.lists(
    st.builds(
        Frame,
        function=st.text(min_size=1, max_size=12),
        file=st.text(max_size=12),
        line=st.integers(0, 10**6),
        kind=st.sampled_from(["python", "native"]),
        short_file=st.text(max_size=12),
    ),
    max_size=5,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_raising(data: bytes) -> None:
    read = parse_pyspy_json(data, pid=1)
    assert read.threads or read.problems or data.strip() == b"[]"


@given(JSON)
def test_any_json_is_read_without_raising(document: object) -> None:
    read = parse_pyspy_json(json.dumps(document).encode(), pid=1)
    assert read.threads or read.problems or document == []


@settings(max_examples=60)
@given(st.lists(FRAMES, min_size=1, max_size=4), st.data())
def test_what_py_spy_writes_is_read_back_and_any_cut_keeps_a_head(
    stacks: list[list[Frame]], data: st.DataObject
) -> None:
    document = [
        {
            "pid": 7,
            "thread_id": 1,
            "thread_name": None,
            "os_thread_id": 7 + at,
            "active": False,
            "owns_gil": False,
            "frames": [
                {
                    "name": frame.function,
                    "filename": frame.file,
                    "module": None if frame.kind == "python" else frame.file,
                    "short_filename": frame.short_file,
                    "line": frame.line,
                    "locals": None,
                    "is_entry": False,
                    "is_shim_entry": False,
                }
                for frame in frames
            ],
            "process_info": None,
        }
        for at, frames in enumerate(stacks)
    ]
    raw = json.dumps(document).encode()
    whole = parse_pyspy_json(raw, pid=7)
    assert not whole.problems
    assert [list(thread.frames) for thread in whole.threads] == stacks
    assert [thread.is_main for thread in whole.threads] == [at == 0 for at in range(len(stacks))]
    cut = parse_pyspy_json(raw[: data.draw(st.integers(0, len(raw) - 1))], pid=7)
    assert cut.problems
    assert [thread.frames for thread in cut.threads] == [
        thread.frames for thread in whole.threads[: len(cut.threads)]
    ]
