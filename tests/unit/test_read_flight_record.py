"""The reader of flight records: every version, JSON and pickle, NCCL and gloo, whole, torn and hostile."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rankscope.diag.model import Collective, FlightRecord, RecordedGroup
from rankscope.diag.read.flight_record import looks_like_record, parse_record

DATA = Path(__file__).parents[1] / "data" / "flight_recorder"
REAL = sorted(file for file in DATA.glob("*/rank*.*") if file.suffix in {".json", ".pickle"})

NCCL: dict[str, Any] = {
    "version": "2.9",
    "nccl_version": "2.21.5",
    "pg_config": {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "7": {"name": "7", "desc": "pp", "ranks": "[1, 3]"},
    },
    "pg_status": {
        "0": {"last_enqueued_collective": 4, "last_started_collective": 3, "last_completed_collective": 2},
        "1": {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1},
    },
    "nccl_comm_state": {"0x7f": {"rank": "3"}},
    "entries": [],
}
ENTRY: dict[str, Any] = {
    "record_id": 0,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 1,
    "p2p_seq_id": 0,
    "op_id": 1,
    "profiling_name": "nccl:all_reduce",
    "time_created_ns": 1_700_000_000_000_000_000,
    "duration_ms": 1.5,
    "input_sizes": [[3, 4], [5]],
    "input_dtypes": ["Float", "BFloat16"],
    "output_sizes": [[3, 4], [5]],
    "output_dtypes": ["Float", "BFloat16"],
    "state": "completed",
    "time_discovered_started_ns": 1_700_000_000_000_000_001,
    "time_discovered_completed_ns": 1_700_000_000_000_000_002,
    "retired": True,
    "timeout_ms": 600_000,
    "is_p2p": False,
    "frames": [{"name": "step", "filename": "/app/train.py", "line": 7}],
}


def nccl(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A NCCL record with the given changes to the standard entry, one after the other."""
    rows = [{**copy.deepcopy(ENTRY), "record_id": at, **one} for at, one in enumerate(entries)]
    return {**copy.deepcopy(NCCL), "entries": rows, **changes}


def read(document: object) -> FlightRecord:
    """Read a document from JSON and as a pickle, which must agree."""
    record, problems = parse_record(pickle.dumps(document, 2))
    assert record is not None, problems
    assert not problems
    again, problems = parse_record(json.dumps(document).encode())
    assert not problems
    assert again == record
    return record


def real(scenario: str, rank: int, kind: str = "pickle") -> FlightRecord:
    record, problems = parse_record((DATA / scenario / f"rank{rank}.{kind}").read_bytes())
    assert record is not None
    assert not problems
    return record


@pytest.mark.parametrize("file", REAL, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_entry_of_a_real_dump_is_read(file: Path) -> None:
    data = file.read_bytes()
    assert looks_like_record(data[:200])
    plain = json.loads(data) if file.suffix == ".json" else pickle.loads(data)
    record, problems = parse_record(data)
    assert record is not None
    assert not problems
    assert len(record.entries) == len(plain.get("entries", []))
    assert record.version == "2.10"
    assert record.rank is None  # gloo's do not say whose they are


@pytest.mark.parametrize("scenario", ["chain", "missing_rank", "type_mismatch", "sub_groups"])
def test_json_and_pickle_of_a_real_job_tell_the_same(scenario: str) -> None:
    for file in sorted((DATA / scenario).glob("*.json")):
        if file.name == "truth.json":
            continue
        rank = int(file.stem[4:])
        from_json, from_pickle = real(scenario, rank, "json"), real(scenario, rank)
        assert from_json.groups == from_pickle.groups
        assert from_json.is_whole == from_pickle.is_whole
        for one, other in zip(from_json.entries, from_pickle.entries, strict=True):
            assert not one.frames  # torch leaves stacks out of its JSON
            assert (one.group, one.seq, one.op, one.is_completed) == (
                other.group,
                other.seq,
                other.op,
                other.is_completed,
            )
            assert (one.input_sizes, one.output_dtypes, one.created_ns) == (
                other.input_sizes,
                other.output_dtypes,
                other.created_ns,
            )


def test_a_real_rank_that_never_called_is_told_from_one_that_waits() -> None:
    waits, missing = real("missing_rank", 0), real("missing_rank", 2)
    last = waits.entries[-1]
    assert (last.group, last.seq, last.op) == ("0", 4, "all_reduce")
    assert last.is_completed is False
    assert last.is_started is None  # gloo does not tell
    assert last.frames[0].function == "all_reduce"
    assert last.frames[-1].file == "/workspace/scen.py"
    assert waits.groups == (RecordedGroup("0", "default_pg", (), 4, -1, 3),)
    assert missing.groups == (RecordedGroup("0", "default_pg", (), 3, -1, 3),)
    assert waits.is_whole
    assert missing.is_whole
    assert all(one.is_completed for one in missing.entries)


def test_another_operation_at_the_same_number_is_seen() -> None:
    assert [real("type_mismatch", rank).entries[-1].op for rank in range(3)] == [
        "all_reduce",
        "broadcast",
        "all_reduce",
    ]


def test_a_ring_that_wrapped_is_not_whole() -> None:
    record = real("ring_wrap", 0)
    assert not record.is_whole
    assert len(record.entries) == 20
    assert {group.name: group.enqueued for group in record.groups} == {"1": 60, "0": 30}


def test_sub_groups_have_their_names_and_numbers() -> None:
    record = real("sub_groups", 1)
    assert [(group.name, group.description, group.enqueued) for group in record.groups] == [
        ("0", "default_pg", 13),
        ("1", "", 1),
        ("2", "tail", 2),
    ]
    assert {one.op for one in record.entries} >= {"all_gather", "barrier", "broadcast", "all_to_all"}
    assert next(one for one in record.entries if one.op == "barrier").input_sizes == ()


def test_after_init_alone_nothing_was_called() -> None:
    for kind in ("json", "pickle"):
        record = real("nothing_called", 0, kind)
        assert record.entries == ()
        assert record.is_whole
        assert record.groups == (RecordedGroup("", "", (0, 1, 2)),)


def test_members_of_the_only_group_are_known_on_gloo() -> None:
    assert real("timed_out", 0).groups[0].members == (0, 1, 2)


def test_what_torch_counts_as_completed_after_a_time_out_is_read_as_it_stands() -> None:
    """Torch 2.13 says so itself; that a member never called it stands in that member's record."""
    assert [one.is_completed for one in real("timed_out", 0).entries] == [True, True]
    assert [one.seq for one in real("timed_out", 2).entries] == [1]


def test_groups_without_a_name_are_kept_apart_by_their_numbers() -> None:
    record = real("debug_detail", 2)
    assert {one.group for one in record.entries} == {""}
    assert sorted(group.enqueued for group in record.groups) == [2, 8]


def test_nccl_says_itself_what_started_and_ended() -> None:
    record = read(
        nccl(
            {},
            {
                "collective_seq_id": 2,
                "state": "started",
                "time_discovered_completed_ns": None,
                "retired": False,
            },
            {"collective_seq_id": 3, "state": "scheduled", "retired": False},
            {"collective_seq_id": 4, "state": "started", "retired": True},  # ran into its time-out
        )
    )
    assert [one.is_completed for one in record.entries] == [True, False, False, False]
    assert [one.is_started for one in record.entries] == [True, True, False, True]
    first = record.entries[0]
    assert (first.started_ns, first.completed_ns) == (1_700_000_000_000_000_001, 1_700_000_000_000_000_002)
    assert first.input_sizes == ((3, 4), (5,))
    assert first.input_dtypes == ("Float", "BFloat16")
    assert record.entries[1].completed_ns == 0
    assert record.groups == (
        RecordedGroup("0", "default_pg", (0, 1, 2, 3), 4, 3, 2),
        RecordedGroup("", "", (), -1, -1, -1),
        RecordedGroup("7", "pp", (1, 3)),
    )
    assert record.is_whole


def test_gloo_is_completed_when_it_was_retired_and_counted() -> None:
    gloo = {"profiling_name": "gloo:all_reduce", "state": "scheduled"}
    record = read(
        nccl(
            {**gloo, "collective_seq_id": 2, "retired": True},
            {**gloo, "collective_seq_id": 3, "retired": True},  # its status says: completed up to 2
            {**gloo, "collective_seq_id": 1, "retired": False},
            {**gloo, "pg_id": 9, "process_group": ["9", "undefined"], "retired": True},  # without a status
        )
    )
    assert [one.is_completed for one in record.entries] == [True, False, False, True]
    assert [one.is_started for one in record.entries] == [None] * 4
    assert (record.groups[1].name, record.groups[1].description, record.groups[1].completed) == ("9", "", 1)


def test_numbers_as_strings_are_numbers() -> None:
    status = {"0": {f"last_{name}_collective": "7" for name in ("enqueued", "started", "completed")}}
    assert read(nccl({}, pg_status=status)).groups[0] == RecordedGroup(
        "0", "default_pg", (0, 1, 2, 3), 7, 7, 7
    )


def test_a_call_that_is_still_inside_counts_as_enqueued() -> None:
    """NCCL raises ``last_enqueued`` when the call returns: its entry is there before."""
    assert (
        read(nccl({"collective_seq_id": 9, "state": "scheduled", "retired": False})).groups[0].enqueued == 9
    )


def test_sends_and_receives_have_their_own_numbers_and_tell_their_peer_and_rank() -> None:
    p2p = {"is_p2p": True, "collective_seq_id": 5, "p2p_seq_id": 2, "process_group": ("7", "pp"), "pg_id": 1}
    record = read(
        nccl(
            {**p2p, "profiling_name": "nccl:recv 1<-0"},
            {**p2p, "profiling_name": "nccl:send 1->0", "p2p_seq_id": 3},
        )
    )
    assert [(one.op, one.seq, one.is_p2p, one.peer) for one in record.entries] == [
        ("recv", 2, True, 1),
        ("send", 3, True, 1),
    ]
    assert record.rank == 3  # 1 in its group, which has the global ranks 1 and 3
    assert record.groups[0].enqueued == -1  # sends are no collectives


def test_the_peer_in_a_group_of_unknown_members_is_not_guessed() -> None:
    p2p = {"is_p2p": True, "profiling_name": "nccl:recv 1<-0", "process_group": ("8", "pp")}
    record = read(nccl(p2p))
    assert record.entries[0].peer is None
    assert record.rank is None
    default = {**p2p, "process_group": ("0", "default_pg")}
    assert read(nccl(default, pg_config={})).entries[0].peer == 0


def test_ranks_that_contradict_each_other_are_no_rank() -> None:
    one = {"is_p2p": True, "profiling_name": "nccl:send 1->0"}
    assert read(nccl(one, {"is_p2p": True, "profiling_name": "nccl:send 2->0"})).rank is None
    assert read(nccl(one)).rank == 1


def test_a_record_that_names_its_rank_is_believed() -> None:
    assert read(nccl({}, rank=5)).rank == 5
    assert read(nccl({}, rank="6")).rank == 6


def test_version_1_has_one_sequence_number_and_microseconds() -> None:
    old = {
        name: ENTRY[name]
        for name in ("record_id", "pg_id", "profiling_name", "input_sizes", "output_sizes", "state")
    }
    old |= {"seq_id": 12, "time_created_us": 1_700_000_000_000_000, "frames": []}
    record = read({"version": "1.1", "entries": [old]})
    (entry,) = record.entries
    assert (entry.group, entry.seq, entry.created_ns, entry.is_completed) == (
        "",
        12,
        1_700_000_000_000_000_000,
        True,
    )
    assert record.groups == (RecordedGroup("", "", (), 12, -1, 12),)
    assert record.version == "1.1"
    send = {**old, "profiling_name": "nccl:send 0->1"}
    assert read([send]).entries[0].is_p2p  # the first version was the bare list


@pytest.mark.parametrize(
    "change",
    [
        {"record_id": 3},  # the first three were overwritten
        {"record_id": None},
        {"record_id": "0"},
    ],
)
def test_a_record_that_does_not_begin_at_zero_is_not_whole(change: dict[str, Any]) -> None:
    assert not read(nccl(change)).is_whole


def test_a_record_of_active_entries_alone_is_not_whole() -> None:
    assert not read(nccl({}, {"record_id": 5})).is_whole
    assert read(nccl({}, {})).is_whole


def test_a_record_whose_entries_were_left_out_is_not_whole() -> None:
    """``includeCollectives=False``: the status shows that there were some."""
    document = nccl()
    del document["entries"]
    assert not read(document).is_whole


def test_stacks_are_kept_of_the_newest_entries_and_of_what_did_not_end() -> None:
    """A stack for each of thousands of entries takes most of the time, and nobody looks at the old ones."""
    rows: list[dict[str, Any]] = [{"collective_seq_id": seq, "record_id": seq - 1} for seq in range(1, 601)]
    rows[40] |= {"state": "scheduled", "retired": False}
    entries = read(nccl(*rows)).entries
    assert [one.seq for one in entries if one.frames] == [41, *range(600 - 256 + 1, 601)]


def test_the_members_of_a_group_are_one_object_for_all_ranks() -> None:
    """A job of 16,384 ranks would have as many lists of as many numbers."""
    first, second = (read(nccl({"record_id": at})) for at in (0, 1))
    assert first.groups[0].members is second.groups[0].members


BROKEN = {
    "an entry is a number": 7,
    "no name": {**ENTRY, "profiling_name": None},
    "sizes are text": {**ENTRY, "input_sizes": "big"},
    "sizes nest": {**ENTRY, "input_sizes": [[[1]]]},
    "sizes are fractions": {**ENTRY, "input_sizes": [[1.5]]},
    "a dtype is a number": {**ENTRY, "input_dtypes": [1]},
    "dtypes are text": {**ENTRY, "input_dtypes": "Float"},
    "the group is a number": {**ENTRY, "process_group": [0, 1]},
    "the number is negative": {**ENTRY, "collective_seq_id": -5},
    "the number is text": {**ENTRY, "collective_seq_id": "many"},
    "the time is negative": {**ENTRY, "time_created_ns": -1},
    "frames are numbers": {**ENTRY, "frames": 5},
    "a frame lacks its line": {**ENTRY, "frames": [{"name": "f", "filename": "x"}]},
}


@pytest.mark.parametrize("entry", BROKEN.values(), ids=BROKEN.keys())
def test_an_entry_that_is_none_is_left_out_and_counted(entry: object) -> None:
    document = {**NCCL, "entries": [ENTRY, entry, {**ENTRY, "record_id": 2}]}
    for data in (pickle.dumps(document, 2), json.dumps(document).encode()):
        record, problems = parse_record(data)
        assert record is not None
        assert len(record.entries) == 2
        assert problems == ("flight record: 1 of 3 entries not understood",)
        assert not record.is_whole


@pytest.mark.parametrize("key", ["pg_config", "pg_status", "version", "entries", "rank"])
@pytest.mark.parametrize("value", [None, 7, "text", [1], {"0": 1}, {"0": {"ranks": 5, "name": 7}}, {"x": {}}])
def test_any_part_may_be_something_else(key: str, value: object) -> None:
    document = {**NCCL, "entries": [ENTRY], key: value}
    record, _ = parse_record(json.dumps(document).encode())
    assert record is not None
    assert len(record.entries) == (key != "entries")


def test_a_json_record_that_was_cut_off_gives_its_whole_entries() -> None:
    data = (DATA / "missing_rank" / "rank0.json").read_bytes()
    whole = real("missing_rank", 0, "json")
    for cut in range(len(data) - 1, 30, -37):
        record, problems = parse_record(data[:cut])
        assert problems
        if record is not None:
            assert not record.is_whole
            assert record.entries == whole.entries[: len(record.entries)]
    record, _ = parse_record(data[:-40])
    assert record is not None
    assert len(record.entries) == 4


def test_a_pickled_record_that_was_cut_off_never_says_that_something_is_open_which_is_not() -> None:
    data = (DATA / "straggler" / "rank1.pickle").read_bytes()
    whole = real("straggler", 1)
    most = 0
    for cut in range(200, len(data) - 1, 101):
        record, problems = parse_record(data[:cut])
        assert problems
        if record is not None:
            assert not record.is_whole
            assert record.entries == whole.entries[: len(record.entries)]
            most = max(most, len(record.entries))
    assert most >= len(whole.entries) - 1


def test_a_hostile_pickle_is_refused_with_one_line() -> None:
    data = pickle.dumps(NCCL, 2)[:-1] + b"cposix\nsystem\nX\x01\x00\x00\x00x\x85R."
    record, problems = parse_record(data)
    assert record is None
    assert problems == (
        "flight record: pickle refused, nothing of it was executed: a name to import (GLOBAL): posix.system",
    )


@pytest.mark.parametrize(
    "field", [*ENTRY, "name", "filename", "line", "desc", "ranks", "version", "pg_config"]
)
def test_a_value_that_nests_too_deeply_to_hash_or_compare_does_no_harm(field: str) -> None:
    """It would end the C stack, and the process with it."""
    entry = {**ENTRY, "frames": [{**ENTRY["frames"][0]}]}
    groups = copy.deepcopy(NCCL["pg_config"])
    document = {**NCCL, "pg_config": groups, "entries": [ENTRY, entry]}
    for place in (entry, entry["frames"][0], groups["0"], document):
        if field in place:
            place[field] = "DEEP"
    deep = b")" + b"\x85" * 150_000
    data = pickle.dumps(document, 2).replace(b"X\x04\x00\x00\x00DEEP", deep)
    assert deep in data
    record, _ = parse_record(data)
    assert record is not None
    assert len(record.entries) >= 1


def test_shapes_that_share_one_giant_part_meet_the_budget() -> None:
    giant = [1] * 100_000
    rows = [{**ENTRY, "record_id": at, "input_sizes": [giant, [at]]} for at in range(2_000)]
    record, problems = parse_record(pickle.dumps({**NCCL, "entries": rows}, 2))
    assert record is not None
    assert "entries not understood" in problems[0]
    assert sum(map(len, record.entries[0].input_sizes)) == 100_001


def test_frames_that_share_one_giant_list_meet_the_budget() -> None:
    giant = [{"name": "f", "filename": "x.py", "line": 1}] * 100_000
    rows = [{**ENTRY, "record_id": at, "frames": giant} for at in range(2_000)]
    _, problems = parse_record(pickle.dumps({**NCCL, "entries": rows}, 2))
    assert "entries not understood" in problems[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b'{"a": 1}',
        b"nothing",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"entries":' * 9_999,
    ],
)
def test_what_is_no_record_gives_none_and_says_so(data: bytes) -> None:
    record, problems = parse_record(data)
    assert record is None
    assert problems


def test_a_byte_order_mark_and_what_stands_behind_do_no_harm() -> None:
    text = json.dumps(nccl({})).encode()
    for data in (b"\xef\xbb\xbf" + text, b"\n  " + text, text + b"\n", text + b"\ntrailing text"):
        record, _ = parse_record(data)
        assert record is not None
        assert len(record.entries) == 1


def test_what_may_be_a_record_is_told_by_its_first_bytes() -> None:
    assert looks_like_record(json.dumps(NCCL, indent=1).encode()[:300])
    assert looks_like_record(pickle.dumps({"a": 1}, 4))
    assert looks_like_record(pickle.dumps(nccl({}), 0)[:3000])
    for head in (b"", b"Process 12: python", b"[rank0]: hello", b'[{"pid": 1, "os_thread_id": 1}]', b"{}"):
        assert not looks_like_record(head)


def test_equal_stacks_are_one_object() -> None:
    record = real("straggler", 0)
    assert record.entries[5].frames is record.entries[6].frames
    assert record.entries[5].input_sizes is record.entries[6].input_sizes


def test_entries_keep_the_order_of_the_record() -> None:
    entries: tuple[Collective, ...] = real("straggler", 2).entries
    assert [one.seq for one in entries] == sorted(one.seq for one in entries)
    assert all(one.created_ns for one in entries)


@pytest.mark.parametrize("head", [(), ("pg_status",), ("pg_config", "pg_status")])
def test_a_json_record_that_was_cut_off_tells_the_last_call_only_where_its_status_stands_before(
    head: tuple[str, ...],
) -> None:
    """Torch sorts the keys, so that the status stands behind the entries; others write them as they come."""
    whole = nccl(*({"collective_seq_id": seq} for seq in range(1, 5)))
    rest = {key: value for key, value in whole.items() if key not in head}
    text = json.dumps({**{key: whole[key] for key in head}, "entries": rest.pop("entries"), **rest})
    at = text.index('"collective_seq_id": 3')
    record, problems = parse_record(text[:at].encode())
    assert record is not None
    assert problems
    assert (record.is_cut, [one.seq for one in record.entries]) == (True, [1, 2])
    group = next(one for one in record.groups if one.name == "0")
    assert (group.enqueued, group.completed) == ((4, 2) if head else (-1, -1))
    assert group.members == ((0, 1, 2, 3) if "pg_config" in head else ())


def test_a_record_that_was_cut_off_behind_its_entries_tells_the_last_call() -> None:
    document = {"entries": nccl({"collective_seq_id": 1})["entries"], "pg_config": NCCL["pg_config"]}
    record, problems = parse_record(json.dumps(document).encode()[:-9])
    assert record is not None
    assert problems
    assert (record.is_cut, record.is_whole, record.groups[0].enqueued) == (False, False, 1)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_pickle_that_was_cut_off_in_its_entries_says_so(part: float) -> None:
    entries = ({"collective_seq_id": seq} for seq in range(1, 90))
    data = pickle.dumps(nccl(*entries, pg_status={0: {"last_enqueued_collective": 99}}), 2)
    begin = data.index(b"record_id")
    record, _ = parse_record(data[: begin + int(part * (len(data) - begin))])
    assert record is not None
    assert record.is_cut
    assert record.groups[0].enqueued == 99


@pytest.mark.parametrize(
    ("counted", "called", "is_inside"),
    [(-1, 1, True), (0, 1, True), (3, 4, True), (4, 4, False), (2, 4, False)],
)
def test_a_call_that_nccl_has_not_counted_yet_has_not_returned(
    counted: int, called: int, *, is_inside: bool
) -> None:
    status = {"0": {"last_enqueued_collective": counted}}
    last = {"collective_seq_id": called, "state": "scheduled", "retired": False}
    group = next(one for one in read(nccl(last, pg_status=status)).groups if one.name == "0")
    assert (group.inside, group.enqueued) == (called if is_inside else -1, called)
    send = {"profiling_name": "nccl:send 0->1", "is_p2p": True, "p2p_seq_id": 1}
    mixed = next(one for one in read(nccl(send, last, pg_status=status)).groups if one.name == "0")
    assert mixed.inside == -1
