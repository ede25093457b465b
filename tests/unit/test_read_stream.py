"""Any input: dumps of many tools and ranks in the middle of logs of any size, in bounded memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from itertools import zip_longest

import pytest
from tests.reading_factory import PREFIXES, functions, log, read, real, shape, wrapped

from rankscope.diag.read.bounds import Bounds
from rankscope.diag.read.stream import DumpStream, read_contents

KINDS = (
    "pyspy.txt",
    "pyspy.json",
    "pyspy_native.txt",
    "pyspy_locals.txt",
    "pystack.txt",
    "pystack_native.txt",
    "pystack_locals.txt",
    "faulthandler.txt",
    "gdb.txt",
    "gdb_pybt.txt",
)
NOISE = ["step 12 loss 2.5 (avg 2.6)", "warming up", "[INFO] saved in 3.2 s"]


@pytest.mark.parametrize("who", PREFIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dump_is_the_same_whatever_stands_before_its_lines(who: str, kind: str) -> None:
    raw = real("lock_blocked", f"rank1.{kind}")
    lines = wrapped(raw, PREFIXES[who])
    contents = read(log([*NOISE, *lines, *NOISE]))
    assert not contents.problems
    assert [shape(dump) for dump in contents.dumps] == [shape(dump) for dump in read(raw).dumps]
    assert contents.lines == 2 * len(NOISE) + len(lines)


@pytest.mark.parametrize(
    ("who", "rank"),
    [
        ("torchrun global", 2),
        ("torchrun twice", 2),
        ("several", 2),
        ("torchrun local", None),
        ("torchrun role", None),
        ("slurm", None),
        ("mpirun", None),
        ("pdsh", None),
        ("kubectl", None),
        ("a template of the user's", None),
    ],
)
def test_only_a_global_rank_is_taken_for_a_rank(who: str, rank: int | None) -> None:
    lines = wrapped(real("lock_blocked", "rank1.pyspy.txt"), PREFIXES[who])
    (dump,) = read(log(lines)).dumps
    assert dump.rank == rank
    assert dump.channel


@pytest.mark.parametrize("style", ["[rank{}]: ", "[default{}]:", "pod-{}  | ", "worker-{}: "])
@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_several_ranks_may_be_mixed(style: str, kind: str) -> None:
    scenarios = ("lock_blocked", "dataloader_worker_sleep", "ddp_backward")
    raws = [real(scenario, f"rank1.{kind}") for scenario in scenarios]
    streams = [
        [style.format(rank) + line for line in raw.decode().split("\n")] for rank, raw in enumerate(raws)
    ]
    mixed: list[str] = []
    draw = random.Random(kind)
    while any(streams):
        stream = draw.choice([one for one in streams if one])
        mixed.append(stream.pop(0))
        if draw.random() < 0.2:
            mixed.append("a line of somebody else")
    contents = read(log(mixed))
    assert not contents.problems
    wanted = {repr(shape(dump)) for raw in raws for dump in read(raw).dumps}
    assert {repr(shape(dump)) for dump in contents.dumps} == wanted
    if style.startswith("[rank"):
        assert sorted(dump.rank for dump in contents.dumps if dump.rank is not None) == [0, 1, 2]


def test_dumps_of_all_tools_in_one_file_are_all_found_in_their_order() -> None:
    raws = [real("lock_blocked", f"rank1.{kind}") for kind in KINDS]
    contents = read(b"\n".join(raws))
    wanted = [shape(dump) for raw in raws for dump in read(raw).dumps]
    found = [shape(dump) for dump in contents.dumps]
    assert [one[0] for one in found] == ["py-spy"] * 4 + ["pystack"] * 3 + ["faulthandler"] + ["gdb"] * 2
    assert found == wanted
    assert [dump.line for dump in contents.dumps] == sorted(dump.line for dump in contents.dumps)


def test_lines_of_other_writers_may_stand_in_the_middle_of_a_dump() -> None:
    raw = real("dataloader_worker_sleep", "rank1.faulthandler.txt")
    lines = [both for line in wrapped(raw, lambda line, _: line) for both in (line, "step 3 loss 2.5")]
    contents = read(log(lines))
    assert [shape(dump) for dump in contents.dumps] == [shape(dump) for dump in read(raw).dumps]


def test_a_log_without_dumps_gives_none_and_counts_its_lines() -> None:
    contents = read(log(NOISE * 1000))
    assert (contents.dumps, contents.records, contents.problems) == ((), (), {})
    assert (contents.lines, contents.size_bytes) == (3000, sum(len(line) + 1 for line in NOISE) * 1000)


def test_an_empty_input_is_told() -> None:
    assert read(b"").problems == {"the input is empty": 1}


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_the_pieces_that_an_input_comes_in_do_not_matter(size: int) -> None:
    raw = log(
        [
            *NOISE,
            *wrapped(real("lock_blocked", "rank1.pyspy.json"), PREFIXES["torchrun local"]),
            *NOISE * 20,
            *wrapped(real("lock_blocked", "rank1.gdb.txt"), PREFIXES["ray"]),
        ]
    )
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert read_contents(pieces) == read(raw)


def test_a_dump_across_the_blocks_of_a_long_log_is_whole() -> None:
    noise = log(["step 12 loss 2.5 lr 0.001"])
    raw = real("dataloader_worker_sleep", "rank1.pyspy_locals.txt")
    wanted = [shape(dump) for dump in read(raw).dumps]
    for distance in range(0, len(raw), 97):
        before = noise * (((1 << 20) - distance) // len(noise))
        contents = read(before + raw + noise * 10)
        assert [shape(dump) for dump in contents.dumps] == wanted
        assert contents.dumps[0].line == before.count(b"\n") + 1


def test_flight_records_are_read_in_any_place() -> None:
    record = json.dumps(
        {
            "version": "2.10",
            "comm_lib_version": "",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": {"last_enqueued_collective": "4"}},
        }
    )
    alone = read(record)
    assert (len(alone.records), alone.problems) == (1, {})
    contents = read(log([*NOISE, f"[rank5]: {record}", *NOISE]))
    assert [(one.groups, one.rank) for one in contents.records] == [(alone.records[0].groups, 5)]


def test_json_lines_that_are_no_dumps_are_lines_of_a_log() -> None:
    lines = ['{"loss": 2.5, "step": 3}', "{'loss': 2.5}", "[", "Thread 5 (idle)", "    f (a.py:3)", "]"]
    contents = read(log(lines))
    assert [functions(dump.threads[0]) for dump in contents.dumps] == [["f"]]
    assert contents.problems == {}


def test_a_cut_dump_gives_what_was_there_and_tells_the_rest() -> None:
    raw = real("dataloader_worker_sleep", "rank1.pyspy.json")
    cut = read(raw[: raw.rindex(b'"os_thread_id"') + 30])
    whole = read(raw).dumps[0]
    assert [thread.name for thread in cut.dumps[0].threads] == [whole.threads[0].name]
    assert any("not a complete list" in problem for problem in cut.problems)


def test_a_line_that_the_container_runtime_broke_is_put_together() -> None:
    raw = real("lock_blocked", "rank1.pyspy.txt").decode().splitlines()
    lines: list[str] = []
    for line in raw:
        half = len(line) // 2
        lines.append(f"2026-09-28T10:00:00Z stderr P {line[:half]}")
        lines.append(f"2026-09-28T10:00:00Z stderr F {line[half:]}")
    contents = read(log(lines))
    wanted = read(real("lock_blocked", "rank1.pyspy.txt"))
    assert [shape(dump) for dump in contents.dumps] == [shape(dump) for dump in wanted.dumps]


def test_what_a_progress_bar_drew_over_is_not_lost() -> None:
    bar = "".join(f"\r{at}%|###       |" for at in range(200_000))
    contents = read(log([bar + "\rThread 5 (idle)", "    f (a.py:3)"]))
    assert [functions(dump.threads[0]) for dump in contents.dumps] == [["f"]]
    assert list(contents.problems) == ["lines longer than 1048576 bytes were cut"]


def hostile() -> Iterator[tuple[str, bytes]]:
    """Inputs that cost a careless reader quadratic time or unbounded memory."""
    deep = b"[" * 300_000
    yield "brackets", deep
    yield "brackets in a dump", b'[{"os_thread_id": 1, "frames": ' + deep
    yield "brackets in a record", b'{"pg_config": ' + deep
    yield "a line a bracket", b"[\n" * 100_000
    yield "one line", b"x" * 30_000_000
    yield "one line of JSON", b'{"pg_config": "' + b"x" * 5_000_000
    yield "headers", b"Thread 1 (idle)\n" * 30_000
    yield "distinct headers", b"".join(b"Thread %d (idle)\n" % at for at in range(30_000))
    yield "frames", b"Thread 1 (idle)\n" + b"    f (a.py:1)\n" * 30_000
    yield "variables", b"Thread 1 (idle)\n    f (a.py:1)\n        Locals:\n" + b"            a: 1\n" * 30_000
    yield "brackets of a frame", b"Thread 1 (idle)\n    " + b" (" * 200_000 + b"\n"
    yield "colons of a frame", b"Thread 1 (idle)\n    a (a" + b":1" * 200_000 + b"\n"
    yield (
        "pystack's frame",
        (
            b"Traceback for thread 1 (p) [] (most recent call last):\n"
            b'    (C) File "x", line 1, in ' + b" (inlined) (" * 40_000 + b"\n"
        ),
    )
    yield (
        "faulthandler's frame",
        b'Thread 0x1 (most recent call first):\n  File "' + b'", line 1 in ' * 40_000,
    )
    yield "gdb's frame", b"#0  f ()\n#1  " + b" (a=" * 100_000 + b"\n"
    yield "gdb's broken frame", b"#0  f (a=1\n" + b"  x\n" * 100_000
    yield "headers in a line", b"Traceback for thread 1 " * 40_000 + b"\n"
    yield "versions in a line", b"Python v3.1 (" * 60_000 + b"\n"
    yield "prefixes", b"".join(b"node%d: Thread %d (idle)\n" % (at, at) for at in range(5_000))
    yield "ranks", b"".join(b"[rank%d]:Thread %d (idle)\n" % (at, at) for at in range(20_000))
    yield "brackets before a pid", (b"(" * 100 + b" (idle)\n") * 20_000
    yield "escapes", b"(idle)\n" + b"\x1b[" * 300_000 + b"\n" + b"\x1b[1" * 300_000 + b"\n"
    yield "partial lines", b"2026-01-01T00:00:00Z stdout P (idle) x\n" * 50_000
    yield "wrapped lines", b'{"log": "' + b"[\\n" * 100_000 + b'"} (idle)\n'
    yield "a list that was cut", b'[{"os_thread_id":1,"frames":[]},' + b'{"frames":[]},' * 50_000 + b'{"x'


@pytest.mark.parametrize(("name", "data"), [pytest.param(*one, id=one[0]) for one in hostile()])
def test_hostile_inputs_take_linear_time(name: str, data: bytes) -> None:
    # Each takes under 2 s here; quadratic ones would run into the timeout of the test.
    contents = read(data)
    assert contents.size_bytes == len(data), name


def test_every_bound_is_held_and_told() -> None:
    bounds = Bounds(
        line_bytes=1 << 16,
        document_bytes=100_000,
        dumps=3,
        threads=8,
        frames=5,
        variables=2,
        channels=2,
        text_bytes=20_000,
    )

    def frames(count: int) -> str:
        return "    f (a.py:1)\n" * count

    told: dict[str, str] = {
        "frames left out": "Thread 1 (idle)\n" + frames(9),
        "threads left out": "".join(f"Thread {at} (idle)\n" for at in range(1, 12)),
        "processes left out": "Thread 1 (idle)\n" * 5,
        "local variables left out": "Thread 1 (idle)\n    f (a.py:1)\n        Locals:\n"
        + "".join(f"            v{at}: 1\n" for at in range(5)),
        "lines of dumps left out": "".join(
            f"Thread {at} (idle)\n    {'f' * 4000} (a.py:1)\n    {'g' * 4000} (a.py:1)\n"
            for at in range(1, 6)
        ),
        "lines longer than": "x" * 3_000_000,
        "a JSON document was cut": '[{"os_thread_id": 1, "frames": []},\n' + '{"frames": []},\n' * 9_000,
        "more than 2 sources": "".join(f"[rank{at}]:Thread {at} (idle)\n" for at in range(1, 5)),
    }
    for problem, text in told.items():
        contents = read(text.encode(), bounds=bounds)
        assert any(one.startswith(problem) for one in contents.problems), (problem, contents.problems)
        assert len(contents.dumps) <= 3
        assert sum(len(dump.threads) for dump in contents.dumps) <= 8
        assert all(len(thread.frames) <= 5 for dump in contents.dumps for thread in dump.threads)


def test_the_innermost_frames_are_kept_where_a_tool_begins_with_the_outermost() -> None:
    head = "Traceback for thread 1 (python) [] (most recent call last):\n"
    text = head + "".join(f'    (Python) File "a.py", line {at}, in f{at}\n' for at in range(100))
    (dump,) = read(text.encode(), bounds=Bounds(frames=7)).dumps
    assert functions(dump.threads[0]) == [f"f{at}" for at in range(99, 92, -1)]


def test_a_long_log_is_read_in_bounded_memory() -> None:
    line = "[default2]:2026-09-28 10:00:00,123 INFO trainer.py:88 step 12 loss 2.345 lr 0.001"
    block = log(
        [line] * 10_000 + wrapped(real("lock_blocked", "rank1.pyspy.txt"), PREFIXES["torchrun local"])
    )
    stream = DumpStream()
    stream.feed(block)
    tracemalloc.start()
    for _ in range(30):
        stream.feed(block)
    contents = stream.close()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(contents.dumps) == 31
    assert contents.size_bytes > 20_000_000
    assert peak < 12_000_000


def test_every_line_has_its_number() -> None:
    numbers = []
    for at, kind in zip_longest(range(3), KINDS[:3]):
        raw = real("lock_blocked", f"rank1.{kind}")
        contents = read(log(NOISE * (at * 100)) + raw) if at else read(raw)
        numbers.append(contents.dumps[0].line)
    assert numbers == [1, 301, 601]
