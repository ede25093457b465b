"""What reads flight records and log lines never raises, whatever it is given, and executes nothing."""

from __future__ import annotations

import json
import pickle
import pickletools
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.diag.read.flight_record import looks_like_record, parse_record
from rankscope.diag.read.log_facts import ANCHORS, FactReader
from rankscope.diag.read.plain_pickle import load_plain

DATA = Path(__file__).parents[1] / "data"
RECORD = (DATA / "flight_recorder" / "chain" / "rank0.pickle").read_bytes()
LINES = [line for file in sorted((DATA / "logs").glob("*.txt")) for line in file.read_text().splitlines()]
FIELDS = st.sampled_from(
    [
        "entries",
        "pg_config",
        "pg_status",
        "version",
        "ranks",
        "name",
        "desc",
        "0",
        "profiling_name",
        "process_group",
        "collective_seq_id",
        "seq_id",
        "input_sizes",
        "input_dtypes",
        "frames",
        "line",
        "state",
        "record_id",
        "pg_id",
        "last_enqueued_collective",
    ]
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(FIELDS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)
CODES = st.sampled_from([op.code.encode("latin-1") for op in pickletools.opcodes])


@given(st.binary(max_size=400))
@example(b"\x80\x04\x95")
@example(b"\x80\x02}(q")
def test_any_bytes_are_read_without_raising(data: bytes) -> None:
    looks_like_record(data)
    loaded = load_plain(data)
    assert loaded.problem or loaded.value is not None or data.startswith((b"N", b"\x80"))
    record, problems = parse_record(data)
    assert record is not None or problems


@given(st.lists(CODES | st.binary(min_size=1, max_size=5), max_size=60))
def test_any_opcodes_are_read_without_raising(codes: list[bytes]) -> None:
    parse_record(b"\x80\x04" + b"".join(codes) + b".")


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_come_back_as_they_were(value: object, protocol: int) -> None:
    loaded = load_plain(pickle.dumps(value, protocol))
    assert loaded.problem == ""
    assert loaded.value == value


@settings(max_examples=300)
@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_any_document_is_read_without_raising_the_same_from_json_and_pickle(
    document: object, protocol: int
) -> None:
    from_pickle, _ = parse_record(pickle.dumps(document, protocol))
    from_json, _ = parse_record(json.dumps(document).encode())
    assert from_json == from_pickle


@given(st.integers(0, len(RECORD)), st.integers(0, len(RECORD)), st.binary(max_size=9))
def test_a_real_record_with_any_piece_replaced_is_read_without_raising(
    start: int, length: int, piece: bytes
) -> None:
    parse_record(RECORD[:start] + piece + RECORD[start + length % 40 :])


@given(
    st.lists(
        st.text(max_size=60)
        | st.sampled_from(LINES)
        | st.builds(lambda line, cut: line[cut:], st.sampled_from(LINES), st.integers(0, 90))
        | st.builds(
            lambda before, anchor, after: before + anchor.decode() + after,
            st.text(max_size=12),
            st.sampled_from(ANCHORS),
            st.text(max_size=30),
        ),
        max_size=40,
    ),
    st.none() | st.integers(0, 7),
)
def test_any_lines_are_read_without_raising(lines: list[str], rank: int | None) -> None:
    reader = FactReader()
    for number, line in enumerate(lines, 1):
        reader.feed(line, number=number, rank=rank)
    for fact in reader.close():
        assert 1 <= fact.line <= len(lines)
        assert len(fact.text) <= 500
        assert fact.exit is None or len(fact.exit.message) <= 500


@given(st.permutations(range(3)))
def test_each_line_of_a_log_tells_the_same_whatever_stands_around_it(order: list[int]) -> None:
    """Three summaries one after the other give three roots, in any order."""
    texts = [(DATA / "logs" / f"{name}.txt").read_text() for name in ("killed", "raised", "error_file")]
    reader = FactReader()
    lines = [line for at in order for line in texts[at].splitlines()]
    for number, line in enumerate(lines, 1):
        reader.feed(line, number=number, rank=None)
    assert [fact.kind for fact in reader.close()].count("root_failure") == 3
