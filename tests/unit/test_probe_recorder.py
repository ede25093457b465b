"""Sequence numbers out of torch's flight recorder, from dumps as torch 2.13 writes them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.watchdog.probe.recorder import (
    Recorder,
    Seq,
    load_plain,
    read_completed,
    read_names,
    read_status,
)


class FlightRecorder:
    """Torch's dump function over a record that the test writes; ``learned`` counts dumps with entries."""

    def __init__(self) -> None:
        self.status: dict[int, Seq] = {}
        self.names: dict[int, str] = {}
        self.entries: list[dict[str, object]] = []
        self.learned = 0
        self.now = 0.0
        self.cost = 0.02

    def __call__(self, *, includeCollectives: bool, includeStackTraces: bool, onlyActive: bool) -> bytes:  # noqa: N803 - torch's names
        assert not includeStackTraces
        dump: dict[str, object] = {
            "version": "2.10",
            "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
            "pg_status": {
                str(number): {
                    "last_enqueued_collective": enqueued,
                    "last_started_collective": -1,
                    "last_completed_collective": completed,
                }
                for number, (enqueued, completed) in self.status.items()
            },
        }
        if includeCollectives:
            self.learned += 1
            self.now += self.cost
            dump["entries"] = [
                {"pg_id": number, "process_group": (name, "undefined")} for number, name in self.names.items()
            ] + self.entries
        return pickle.dumps(dump)

    def reader(self) -> Recorder:
        return Recorder(self, clock=lambda: self.now)


def test_numbers_get_the_names_that_their_entries_tell() -> None:
    fr = FlightRecorder()
    fr.status = {0: (3, 3), 2: (1, 0)}
    fr.names = {0: "0", 2: "5"}
    assert fr.reader().read() == ({"0": (3, 3), "5": (1, 0)}, True)


def test_entries_are_dumped_only_when_an_unknown_number_appears() -> None:
    fr = FlightRecorder()
    recorder = fr.reader()
    recorder.read()
    assert fr.learned == 0
    fr.status, fr.names = {0: (1, 1)}, {0: "0"}
    for enqueued in range(1, 5):
        fr.status = {0: (enqueued, enqueued)}
        recorder.read()
    assert fr.learned == 1


def test_learning_takes_no_more_than_a_thousandth_of_the_time() -> None:
    fr = FlightRecorder()
    recorder = fr.reader()
    for second in range(100):
        fr.now += 1.0
        fr.status[second] = (1, 1)
        fr.names[second] = f"group {second}"
        recorder.read()
    assert fr.learned * fr.cost <= 0.0015 * fr.now
    assert fr.learned > 2


def test_a_number_whose_entries_are_gone_is_asked_for_again_only_when_it_moved() -> None:
    fr = FlightRecorder()
    fr.status = {7: (1, 1)}
    recorder = fr.reader()
    for _ in range(5):
        fr.now += 1000
        assert recorder.read() == ({}, False)
    assert fr.learned == 1
    fr.status, fr.names = {7: (2, 2)}, {7: "7"}
    assert recorder.read() == ({"7": (2, 2)}, True)


def collectives(number: int, *retired: bool) -> list[dict[str, object]]:
    return [
        {"pg_id": number, "collective_seq_id": seq, "retired": done, "is_p2p": False}
        for seq, done in enumerate(retired, start=1)
    ]


def test_a_collective_that_the_status_calls_open_and_the_entries_finished_is_finished() -> None:
    """Gloo's threads report out of order: the status stays at (3, 2) after all three are done."""
    fr = FlightRecorder()
    fr.status, fr.names = {0: (3, 2)}, {0: "0"}
    recorder = fr.reader()
    assert recorder.read()[0] == {"0": (3, 2)}
    fr.now += 1000
    fr.entries = collectives(0, True, True, True)
    assert recorder.read()[0] == {"0": (3, 3)}
    fr.now += 1000
    assert recorder.read()[0] == {"0": (3, 3)}
    assert fr.learned == 2, "once for the name, once for the doubt, and no more"
    fr.status = {0: (4, 2)}
    assert recorder.read()[0] == {"0": (4, 3)}


def test_a_collective_that_is_open_stays_open_and_is_asked_for_again() -> None:
    fr = FlightRecorder()
    fr.status, fr.names = {0: (3, 1)}, {0: "0"}
    fr.entries = collectives(0, True, True, False)
    recorder = fr.reader()
    for _ in range(4):
        assert recorder.read()[0] == {"0": (3, 2)}
        fr.now += 1000
    assert fr.learned == 4
    fr.entries = collectives(0, True, True, True)
    assert recorder.read()[0] == {"0": (3, 3)}


def test_a_group_that_moves_is_not_doubted() -> None:
    fr = FlightRecorder()
    fr.status, fr.names = {0: (3, 2)}, {0: "0"}
    recorder = fr.reader()
    for enqueued in range(3, 9):
        fr.now += 1000
        fr.status = {0: (enqueued, enqueued - 1)}
        assert recorder.read()[0] == {"0": (enqueued, enqueued - 1)}
    assert fr.learned == 1


def test_what_the_entries_tell_is_per_group_without_p2p_and_never_raises() -> None:
    entries: list[object] = [
        *collectives(0, True, False, True),
        *collectives(1, True, True),
        {"pg_id": 1, "collective_seq_id": 9, "retired": False, "is_p2p": True},
        {"pg_id": 2, "collective_seq_id": 5},
        None,
        {"pg_id": "x", "collective_seq_id": 5, "retired": True},
    ]
    assert read_completed({"entries": entries}) == {0: 1, 1: 2}
    assert read_completed({"entries": None}) == read_completed({}) == {}


def test_of_two_groups_of_one_name_the_later_one_counts() -> None:
    fr = FlightRecorder()
    fr.status = {0: (900, 900), 10: (1, 0), 9: (50, 50)}
    fr.names = {0: "0", 9: "1", 10: "0"}
    assert fr.reader().read()[0] == {"0": (1, 0), "1": (50, 50)}


def test_a_forgotten_group_leaves_no_number_behind() -> None:
    fr = FlightRecorder()
    fr.status, fr.names = {0: (900, 900)}, {0: "0"}
    recorder = fr.reader()
    recorder.read()
    recorder.forget("0")
    assert recorder.read() == ({}, True)
    fr.now += 1000
    fr.status[4], fr.names[4] = (1, 1), "0"
    assert recorder.read() == ({"0": (1, 1)}, True)


def test_blank_names_of_detail_debugging_stay_unknown_without_asking_again() -> None:
    fr = FlightRecorder()
    fr.status, fr.names = {0: (1, 1), 1: (4, 4)}, {0: "", 1: ""}
    recorder = fr.reader()
    for _ in range(3):
        fr.now += 1000
        fr.status[1] = (fr.status[1][0] + 1, 4)
        assert recorder.read() == ({}, False)
    assert fr.learned == 1


def test_a_dump_that_wants_to_run_code_is_not_read() -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return os.putenv, ("RANKSCOPE_TRAP", "sprung")

    assert load_plain(pickle.dumps({"pg_status": Trap()})) == {}


@pytest.mark.parametrize(
    "dump",
    [
        {},
        {"pg_status": None, "entries": None},
        {"pg_status": {"x": {}, "0": None, "1": {"last_enqueued_collective": None}}},
        {"entries": [None, {}, {"pg_id": "x"}, {"pg_id": 0, "process_group": ()}]},
    ],
)
def test_what_is_not_understood_is_left_out(dump: Mapping[object, object]) -> None:
    assert read_status(dump) == {}
    assert read_names(dump) == {}


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(raw: bytes) -> None:
    dump = load_plain(raw)
    read_status(dump)
    read_names(dump)
