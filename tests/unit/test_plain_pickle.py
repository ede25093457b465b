"""The unpickler of plain values: what it loads, what it refuses, and that nothing is ever executed."""

from __future__ import annotations

import collections
import datetime as dt
import io
import os
import pickle
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.diag.read import plain_pickle
from rankscope.diag.read.plain_pickle import load_plain

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65_535, 65_536, -(2**31), 2**31, 2**62, -(2**62), 2**63 - 1, 1.5, -0.0],
    "others": [None, True, False, "", "text", "ünïcode \u2028 🏖", "x" * 300, "line\nbreak \\ 'quoted'"],
    "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((1, "a"), [(2,)])],
    "nested": {"dict": {"list": [{}, [], [[]]]}},
    "long list": list(range(2_500)),
    "long dict": {str(key): key for key in range(2_500)},
}
WATCHED: list[str] = []


def watched() -> None:
    """Stands for anything that a pickle may call in this process."""
    WATCHED.append("called")


class Calls:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class Stateful:
    """Pickles as an object with a state to set."""

    def __setstate__(self, state: object) -> None:
        watched()

    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}


def with_lists(value: object) -> object:
    """The value with a list for every tuple, as it is loaded: no tuple can be a key."""
    if isinstance(value, (list, tuple)):
        return [with_lists(one) for one in value]
    return {key: with_lists(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_of_every_protocol_are_loaded(protocol: int) -> None:
    loaded = load_plain(pickle.dumps(PLAIN, protocol))
    assert loaded.problem == ""
    assert loaded.value == with_lists(PLAIN)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tuple_cannot_be_the_key_of_a_dict(protocol: int) -> None:
    for key in ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ("a", ("b",))):
        loaded = load_plain(pickle.dumps([{key: 1}], protocol))
        assert loaded.value is None
        assert "unhashable" in loaded.problem


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 257, 70_000])
@pytest.mark.parametrize("letter", ["a", "\x00", "é", "\u2028"])
def test_text_of_any_length_is_loaded_as_it_stands(protocol: int, size: int, letter: str) -> None:
    value = {"before": 1, "text": letter * size, "behind": [(1, letter)]}
    loaded = load_plain(pickle.dumps(value, protocol))
    assert (loaded.problem, loaded.value) == ("", with_lists(value))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_bytes_are_loaded_where_the_protocol_has_them(protocol: int) -> None:
    value = [b"", b"short", b"x" * 70_000]
    assert load_plain(pickle.dumps(value, protocol)).value == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_shared_or_contains_itself_stays_so(protocol: int) -> None:
    shared = ["one"]
    value: dict[str, object] = {"a": shared, "b": shared}
    value["self"] = value
    loaded = load_plain(pickle.dumps(value, protocol)).value
    assert isinstance(loaded, dict)
    assert loaded["a"] is loaded["b"]
    assert loaded["self"] is loaded


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"entries": [it]}, lambda it: [1, (it, 2)]])
def test_a_call_of_the_operating_system_is_refused_and_not_made(
    tmp_path: Path, protocol: int, wrap: Callable[[object], object]
) -> None:
    trace = tmp_path / "executed"
    loaded = load_plain(pickle.dumps(wrap(Calls(os.mkdir, str(trace))), protocol))
    assert loaded.value is None
    assert loaded.problem.startswith("pickle refused, nothing of it was executed")
    assert f"{os.mkdir.__module__}.mkdir" in loaded.problem
    assert "\n" not in loaded.problem
    assert not trace.exists()


HOSTILE = {
    "eval": pickle.dumps(Calls(eval, "__import__('tests').x"), 2),
    "INST": b"(S'x'\ni__main__\nwatched\n.",
    "OBJ": b"(c__main__\nwatched\no.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x08__main__\x8c\x07watched\x93)R.",
    "STACK_GLOBAL from the memo": b"\x80\x04\x8c\x08__main__\x94\x8c\x07watched\x940h\x00h\x01\x93)R.",
    "NEWOBJ": pickle.dumps(collections.OrderedDict(a=1), 2),
    "NEWOBJ_EX": b"\x80\x04\x8c\x08builtins\x8c\x04dict\x93)}\x92.",
    "REDUCE without a name": b"\x80\x02X\x01\x00\x00\x00a)R.",
    "BUILD": b"\x80\x02}X\x01\x00\x00\x00ab.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "PERSID": b"P123\n.",
    "BINPERSID": b"\x80\x02K\x01Q.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "READONLY_BUFFER": b"\x80\x05C\x01a\x98.",
    "BYTEARRAY8": b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
    "EMPTY_SET": b"\x80\x04\x8f.",
    "FROZENSET": b"\x80\x04(K\x01\x91.",
    "a date": pickle.dumps(dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), 4),
    "an object with a state": pickle.dumps(Stateful(), 2),
    "a call of ours": pickle.dumps(Calls(watched), 4),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_is_more_than_a_value_is_refused(data: bytes) -> None:
    for pickled in (data, b"\x80\x02]" + data.removeprefix(b"\x80\x02")):
        loaded = load_plain(pickled)
        assert loaded.value is None
        assert "refused" in loaded.problem
    assert not WATCHED


def test_a_registered_extension_is_refused_too() -> None:
    import copyreg

    copyreg.add_extension(__name__, "watched", 240)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf0.") is watched  # it is in C's cache now
        assert "EXT1" in load_plain(b"\x80\x02\x82\xf0)R.").problem
    finally:
        copyreg.remove_extension(__name__, "watched", 240)
    assert not WATCHED


def test_a_refused_pickle_gives_nothing_of_what_stood_before() -> None:
    data = pickle.dumps({"entries": [1, 2, 3]}, 2)[:-1] + b"cos\nsystem\n(S'x'\ntR."
    assert load_plain(data).value is None


BOMBS = {
    "memo slot": b"\x80\x02]r\xff\xff\xff\x7f.",
    "memo slot in digits": b"]p2147483647\n.",
    "memo slot in very many digits": b"]p" + b"9" * 100_000 + b"\n.",
    "bytes that are not there": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
    "text that is not there": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "number of a million digits": b"L" + b"9" * 1_000_000 + b"L\n.",
    "number of a million bytes": b"\x80\x02\x8b" + struct.pack("<i", 1_000_000) + b"\x7f" * 1_000_000 + b".",
    "number with a negative length": b"\x80\x02\x8b\xff\xff\xff\xffx.",
    "containers": b"\x80\x02(" + b"]" * (plain_pickle.MAX_CONTAINERS + 1) + b"l.",
    "keys that nest too deeply to hash": b"\x80\x02}(" + b")" + b"\x85" * 900_000 + b"Nu.",
    "a nested key in a dict of one": b"\x80\x02})" + b"\x85" * 900_000 + b"Ns.",
    "a nested key in a dict of the oldest kind": b"(" + b")" + b"\x85" * 900_000 + b"Nd.",
    "numbers of 64 bits that are longer": b"\x80\x02]\x8a\x09" + b"\x7f" * 9 + b"a.",
    "digits of 64 bits that are longer": b"L" + b"9" * 30 + b"L\n.",
    "tuples": b"\x80\x02]" + b"N\x85" * 300_000 + b"0.",
    "keys that collide": b"\x80\x02}("
    + b"".join(
        b"\x8a\x09" + ((1 << 61) - 1 << 3 | 1).__mul__(at).to_bytes(9, "little") + b"N" for at in range(99)
    )
    + b"u.",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_meets_a_limit(data: bytes) -> None:
    tracemalloc.start()
    try:
        begun = time.process_time()
        loaded = load_plain(data)
        took = time.process_time() - begun
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loaded.value is None or "cut off" in loaded.problem
    assert loaded.problem
    assert peak < 64 << 20
    assert took < 20  # CPU seconds; a bomb that goes off takes minutes, or the machine


@pytest.mark.parametrize("slot", [1 << 22, 1 << 28, (1 << 32) - 1])
def test_a_memo_slot_beyond_the_limit_is_refused_before_it_is_allocated(slot: int) -> None:
    for data in (b"\x80\x02]r" + struct.pack("<I", slot) + b".", b"]p%d\n." % slot):
        assert "a memo slot beyond the limit" in load_plain(data).problem
    below = b"\x80\x02]r" + struct.pack("<I", 1 << 16) + b"."
    assert load_plain(below).value == []


def test_a_pickle_over_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_BYTES", 100)
    assert "more than 100" in load_plain(pickle.dumps(list(range(1000)), 2)).problem


@pytest.mark.parametrize(
    "filling", [b"N0", b"K\x010", b"J\x00\x00\x00\x000", b"]r\x00\x01\x00\x000", b"h\x000"]
)
def test_any_run_of_opcodes_may_be_long(filling: bytes) -> None:
    for extra in range(3):
        data = b"\x80\x02]q\x00" + b"N0" * extra + filling * 5_000 + b"."
        assert load_plain(data) == plain_pickle.Unpickled([])


def test_deep_nesting_is_loaded_and_freed() -> None:
    depth = 300_000
    value = load_plain(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".").value
    count = 0
    while isinstance(value, list) and value:
        (value,) = value
        count += 1
    assert count == depth - 1


def test_shared_parts_do_not_multiply() -> None:
    """Thirty lists of the one before, ten times each: 10**30 if they were copied."""
    data = (
        b"\x80\x02]q\x00" + b"".join(b"](" + b"h%c" % at * 10 + b"eq%c" % (at + 1) for at in range(30)) + b"."
    )
    value = load_plain(data).value
    assert isinstance(value, list)
    assert len(value) == 10
    assert all(one is value[0] for one in value)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("group", [1, ("0", "default_pg"), (1,), (1, 2, 3, 4)])
def test_a_cut_pickle_gives_what_was_there(protocol: int, group: object) -> None:
    rows = [{"id": at, "group": with_lists(group), "name": f"row {at}"} for at in range(50)]
    written = [{**row, "group": group} for row in rows]
    data = pickle.dumps({"version": "2.10", "entries": written}, protocol)
    for cut in range(40, len(data) - 1, 7):
        loaded = load_plain(data[:cut])
        assert "cut off" in loaded.problem
        got = loaded.value
        assert isinstance(got, dict)
        assert got.get("version", "2.10") == "2.10"
        assert got.get("entries", [])[:-1] == rows[: max(len(got.get("entries", [])) - 1, 0)]
    assert len(load_plain(data[:-9]).value["entries"]) >= 49  # type: ignore[index]  # a dict, as seen above


def test_text_that_is_no_utf_8_does_not_lose_the_rest() -> None:
    assert load_plain(b"\x80\x02]X\x02\x00\x00\x00\xff\xfea.").value == ["\ufffd\ufffd"]


def test_what_is_no_pickle_says_so() -> None:
    for data in (
        b"",
        b"\x80",
        b"hello world",
        b"[rank0]: Traceback",
        b"\x80\x02.",
        b"\x80\x09N.",
        b"\x80\x02(.",
    ):
        loaded = load_plain(data)
        assert loaded.value is None
        assert loaded.problem


def test_what_a_frame_promises_does_not_count() -> None:
    assert load_plain(b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"].").value == []


def test_what_stands_behind_the_end_is_not_looked_at() -> None:
    assert load_plain(pickle.dumps([1], 2) + b"cos\nsystem\n.").value == [1]


def test_values_agree_with_the_standard_unpickler_on_real_records() -> None:
    folder = Path(__file__).parents[1] / "data" / "flight_recorder"
    files = sorted(folder.glob("*/*.pickle"))
    assert len(files) > 20
    for file in files:
        data = file.read_bytes()
        assert load_plain(data).value == with_lists(pickle.load(io.BytesIO(data))), file
