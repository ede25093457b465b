"""What becomes of dumps of several tools, looks, ranks and hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.dumps_factory import (
    STUCK,
    WAITS,
    a_dump,
    a_fact,
    a_file,
    a_record,
    gathered,
    native,
    python,
    ranks_of,
)
from tests.reading_factory import read

from rankscope.diag.dumps.names import read_name, time_of
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import FrameVariables, ThreadStack
from rankscope.diag.read import FactKind, LogFact, StackDump


def test_files_of_one_rank_each_make_one_snapshot_without_a_second() -> None:
    found = gathered(
        a_file("rank0.pyspy.txt", a_dump(10, *WAITS)), a_file("rank1.pyspy.txt", a_dump(11, *STUCK))
    )
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid, rank.source) for rank in snapshot.ranks] == [
        (0, 10, "py-spy"),
        (1, 11, "py-spy"),
    ]
    assert snapshot.world_size == 2
    assert snapshot.ranks[1].threads[0].frames == STUCK
    assert found.notes == ()
    assert not found.unplaced


def test_several_tools_of_one_rank_are_one_look_with_what_each_knows() -> None:
    variables = (FrameVariables(0, (("path", "'/data/7'"),)),)
    with_source = (python("load_batch", 8, source="pipe.read()"), python("<module>", 90, source="main()"))
    ranks = ranks_of(
        a_file("rank0.faulthandler.txt", a_dump(0, *STUCK, source="faulthandler", name=None)),
        a_file("rank0.pystack.txt", a_dump(10, *with_source, source="pystack", name="python", gil=True)),
        a_file("rank0.pyspy_locals.txt", a_dump(10, *STUCK, variables=variables)),
        a_file("rank0.pyspy_native.txt", a_dump(10, native("read"), *STUCK)),
    )
    (thread,) = ranks[0].threads
    assert [frame.function for frame in thread.frames] == ["read", "load_batch", "<module>"]
    assert [frame.source for frame in thread.frames] == ["", "pipe.read()", "main()"]
    assert thread.variables == (FrameVariables(1, (("path", "'/data/7'"),)),)
    assert thread.holds_gil is True
    assert thread.name == "MainThread"
    assert ranks[0].source == "py-spy"


def test_frames_of_another_moment_are_not_laid_over() -> None:
    elsewhere = (
        native("c10d::Work::wait"),
        python("all_reduce", 7, source="work.wait()"),
        python("<module>", 91),
    )
    ranks = ranks_of(
        a_file("rank0.pyspy.json", a_dump(10, *STUCK)),
        a_file("rank0.pystack_nonblock.txt", a_dump(10, *elsewhere, source="pystack")),
    )
    assert ranks[0].threads[0].frames == STUCK


def test_gdb_gives_the_native_calls_below_the_innermost_python_frame() -> None:
    stack = (
        native("poll"),
        native("c10d::TCPStore::doWait"),
        native("_PyEval_EvalFrameDefault"),
        native("main"),
    )
    ranks = ranks_of(
        a_file("rank0.faulthandler.txt", a_dump(0, *STUCK, source="faulthandler")),
        a_file("rank0.gdb.txt", a_dump(10, *stack, source="gdb")),
    )
    functions = [frame.function for frame in ranks[0].threads[0].frames]
    assert functions == ["poll", "c10d::TCPStore::doWait", "load_batch", "<module>"]


def test_a_thread_that_only_one_tool_shows_is_kept() -> None:
    helper = ThreadStack(77, "gloo_tcp_loop", (native("epoll_wait"),))
    ranks = ranks_of(
        a_file("rank0.pyspy.txt", a_dump(10, *WAITS)),
        a_file("rank0.pystack_native_all.txt", a_dump(10, native("poll"), source="pystack", others=[helper])),
    )
    assert [thread.thread_id for thread in ranks[0].threads] == [10, 77]


def test_short_paths_are_completed_by_a_dump_that_has_whole_ones() -> None:
    ranks = ranks_of(
        a_file("rank0.pyspy.txt", a_dump(10, python("load_batch", 8, "train.py"))),
        a_file("rank0.faulthandler.txt", a_dump(0, python("load_batch", 8), source="faulthandler")),
    )
    (frame,) = ranks[0].threads[0].frames
    assert (frame.file, frame.short_file) == ("/workspace/train.py", "train.py")


def test_a_source_line_that_one_rank_s_dump_gives_is_known_for_all() -> None:
    shown = python("load_batch", 8, source="pipe.read()")
    ranks = ranks_of(
        a_file("rank0.pystack.txt", a_dump(10, shown, source="pystack")),
        a_file("rank1.pyspy.txt", a_dump(11, python("load_batch", 8, "train.py"))),
    )
    assert ranks[1].threads[0].frames[0].source == "pipe.read()"


def test_first_and_last_look_are_the_pair_and_the_others_stand_between() -> None:
    files = [
        a_file(f"samples/t{at}.rank0.pyspy.json", a_dump(10, python("step", at + 1))) for at in range(11)
    ]
    found = gathered(*reversed(files))
    assert [look.ranks[0].threads[0].frames[0].line for look in found.snapshots] == list(range(1, 12))


def test_dumps_that_follow_each_other_in_one_file_are_looks() -> None:
    found = gathered(a_file("rank0.txt", *(a_dump(10, python("step", line)) for line in (1, 2, 3))))
    assert len(found.snapshots) == 3


def test_one_file_name_in_several_folders_is_several_looks_at_one_process() -> None:
    found = gathered(
        *(a_file(f"look{at}/rank0.txt", a_dump(10, python("step", at))) for at in (10, 2)),
    )
    assert [look.ranks[0].threads[0].frames[0].line for look in found.snapshots] == [2, 10]


def test_a_rank_with_a_single_look_stands_in_the_newest_snapshot_only() -> None:
    found = gathered(
        a_file("t0.rank0.txt", a_dump(10, *WAITS)),
        a_file("t1.rank0.txt", a_dump(10, *WAITS)),
        a_file("rank1.txt", a_dump(11, *STUCK)),
    )
    assert [[rank.rank for rank in look.ranks] for look in found.snapshots] == [[0], [0, 1]]


def test_of_two_processes_of_one_rank_one_is_judged_and_the_other_counted() -> None:
    found = gathered(
        a_file("rank0.pyspy.txt", a_dump(10, *WAITS)),
        a_file("samples/t0.rank0.pyspy.json", a_dump(20, *STUCK)),
        a_file("samples/t1.rank0.pyspy.json", a_dump(20, *STUCK)),
    )
    assert [look.ranks[0].pid for look in found.snapshots] == [20, 20]
    assert found.unplaced == {"stacks of another process of rank 0 (pid 20 is judged)": 1}


def test_children_belong_to_their_rank_by_name_by_parent_and_by_what_they_run() -> None:
    worker = python("_worker_loop", 334, "/venv/torch/utils/data/_utils/worker.py")
    named = ranks_of(
        a_file("rank0.pyspy.txt", a_dump(10, *WAITS)),
        a_file("rank0.child99.pyspy.txt", a_dump(99, *STUCK)),
    )
    together = ranks_of(
        a_file("rank0.txt", a_dump(99, worker), a_dump(10, *WAITS), a_dump(98, *STUCK, parent=10))
    )
    assert [child.pid for child in named[0].children] == [99]
    assert together[0].pid == 10
    assert [child.pid for child in together[0].children] == [98, 99]


def test_the_first_process_in_a_ranks_file_is_the_rank_when_nothing_tells_them_apart() -> None:
    ranks = ranks_of(a_file("rank0.txt", a_dump(10, *WAITS), a_dump(11, *STUCK)))
    assert (ranks[0].pid, [child.pid for child in ranks[0].children]) == (10, [11])


def test_folders_that_show_the_same_processes_are_looks_and_no_hosts() -> None:
    found = gathered(
        *(
            a_file(f"{when}/rank{rank}.txt", a_dump(10 + rank, *WAITS))
            for when in ("a", "b")
            for rank in (0, 1)
        )
    )
    assert [[rank.pid for rank in look.ranks] for look in found.snapshots] == [[10, 11], [10, 11]]
    assert found.notes == ()


def test_a_launcher_is_no_rank_and_ranks_without_names_are_numbered_by_process() -> None:
    agent = python("_invoke_run", 9, "/venv/torch/distributed/elastic/agent/server/api.py")
    found = gathered(
        a_file("all.txt", a_dump(5, agent), a_dump(12, *STUCK, parent=5), a_dump(11, *WAITS, parent=5))
    )
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid) for rank in snapshot.ranks] == [(0, 11), (1, 12)]
    assert found.notes == ("ranks are not named anywhere: numbered in the order of the process numbers",)
    assert found.unplaced == {"stacks of a launcher that is no rank (py-spy)": 1}


def test_ranks_without_names_are_told_by_command_line_or_by_local_variables() -> None:
    titles = ranks_of(
        a_file("a.txt", a_dump(11, *STUCK, title="python train.py --local-rank=1")),
        a_file("b.txt", a_dump(12, *WAITS, title="python train.py --local-rank=0")),
    )
    assert {rank: one.pid for rank, one in titles.items()} == {0: 12, 1: 11}
    values = {11: "1", 12: "0"}
    told = gathered(
        *(
            a_file(
                f"{pid}.log",
                a_dump(pid, *STUCK, variables=(FrameVariables(1, (("rank", rank), ("world_size", "4"))),)),
            )
            for pid, rank in values.items()
        )
    )
    (snapshot,) = told.snapshots
    assert {rank.rank: rank.pid for rank in snapshot.ranks if rank.observed} == {0: 12, 1: 11}
    assert snapshot.world_size == 4
    assert told.notes == ()


def test_bare_numbers_are_ranks_but_not_when_they_number_looks_or_processes() -> None:
    ranks = ranks_of(a_file("dump-0", a_dump(12, *WAITS)), a_file("dump-1", a_dump(11, *STUCK)))
    assert {rank: one.pid for rank, one in ranks.items()} == {0: 12, 1: 11}
    pids = ranks_of(a_file("dump.12", a_dump(12, *WAITS)), a_file("dump.11", a_dump(11, *STUCK)))
    assert {rank: one.pid for rank, one in pids.items()} == {0: 11, 1: 12}


def test_a_prefix_of_the_lines_is_stronger_than_the_name_of_the_file() -> None:
    ranks = ranks_of(a_file("rank0.log", a_dump(11, *STUCK, rank=1), a_dump(10, *WAITS)))
    assert {rank: one.pid for rank, one in ranks.items()} == {0: 10, 1: 11}


def test_equal_ranks_of_different_processes_on_several_hosts_are_local_ranks() -> None:
    found = gathered(
        *(
            a_file(f"host{node}/rank{rank}.txt", a_dump(100 * node + rank, *WAITS))
            for node in (1, 2)
            for rank in (0, 1)
        )
    )
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid, rank.node) for rank in snapshot.ranks] == [
        (0, 100, "host1"),
        (1, 101, "host1"),
        (2, 200, "host2"),
        (3, 201, "host2"),
    ]
    assert "taken as ranks on their node" in found.notes[0]


def test_ranks_that_must_exist_are_unobserved_with_a_reason() -> None:
    ranks = ranks_of(
        a_file("rank0.txt", a_dump(10, *WAITS)),
        a_file("rank0.json", a_record(0, 1, 2, 3)),
        a_file("rank2.pyspy.txt", a_dump(12, trouble="Permission denied")),
        a_file("train.log", a_fact("failure", "killed", rank=3, code=-9)),
    )
    assert set(ranks) == {0, 1, 2, 3}
    assert ranks[1].reason == "no dump of this rank was given"
    assert ranks[2].reason == "py-spy: Permission denied"
    assert ranks[3].exit is not None
    assert not any(ranks[rank].observed or ranks[rank].threads for rank in (1, 2, 3))


def test_a_record_belongs_to_its_rank_and_the_fullest_of_several_forms_counts() -> None:
    ranks = ranks_of(
        a_file("rank0.json", a_record(0, 1)),
        a_file("rank0.pickle", a_record(0, 1, entries=3)),
        a_file("nccl_trace_rank_1", a_record(0, 1, enqueued=9)),
        a_file("rank1.txt", a_dump(11, *STUCK)),
    )
    assert ranks[0].record == a_record(0, 1, entries=3)
    assert not ranks[0].observed
    assert ranks[1].record == a_record(0, 1, enqueued=9)
    assert ranks[1].threads


def test_records_of_several_looks_are_a_pair() -> None:
    found = gathered(*(a_file(f"t{at}.rank0.json", a_record(0, enqueued=at)) for at in (1, 5, 3)))
    enqueued = [look.ranks[0].record.groups[0].enqueued for look in found.snapshots if look.ranks[0].record]
    assert enqueued == [1, 3, 5]


def test_what_a_watchdog_says_becomes_a_record_of_its_rank_and_a_mismatch_of_both() -> None:
    ranks = ranks_of(
        a_file(
            "train.log",
            a_fact("watchdog_timeout", rank=0, record=a_record(enqueued=4)),
            a_fact("mismatch", rank=1, record=a_record(enqueued=5), other=(2, a_record(enqueued=6))),
        )
    )
    enqueued = {rank: one.record.groups[0].enqueued for rank, one in ranks.items() if one.record}
    assert enqueued == {0: 4, 1: 5, 2: 6}


def test_the_root_of_torchruns_summary_ended_before_all_others() -> None:
    ranks = ranks_of(
        a_file(
            "train.log",
            a_fact("failure", "RuntimeError: Connection closed by peer", rank=0, time=100.0, code=1),
            a_fact("root_failure", "killed", rank=2, time=100.0, code=-9),
            a_fact("signalled", rank=None, pid=31, time=101.0),
            a_fact("failure", rank=1, pid=31, time=101.0, code=-15),
        )
    )
    ends = {rank: one.exit for rank, one in ranks.items()}
    assert {rank: end.code for rank, end in ends.items() if end} == {0: 1, 1: -15, 2: -9}
    ages = {rank: end.seconds_ago or 0.0 for rank, end in ends.items() if end}
    assert ages[2] > ages[0] >= ages[1]


def test_an_exception_in_a_ranks_own_log_is_its_end() -> None:
    ranks = ranks_of(
        a_file("rank1.stderr.txt", a_fact("raised", "ValueError: no batch")), a_file("rank0.stderr.txt")
    )
    assert ranks[1].exit is not None
    assert (ranks[1].exit.code, ranks[1].exit.message) == (None, "ValueError: no batch")
    assert ranks[0].exit is None
    assert ranks[0].reason == "no stack of this rank was given"


@pytest.mark.parametrize("code", [-6, 1])
def test_ranks_whose_stacks_were_taken_before_they_all_ended_are_judged_by_the_stacks(code: int) -> None:
    found = gathered(
        a_file("rank0.txt", a_dump(10, *WAITS)),
        a_file("rank1.txt", a_dump(11, *STUCK)),
        a_file("train.log", *(a_fact("failure", rank=rank, code=code) for rank in (0, 1))),
    )
    assert not any(rank.exit for rank in found.snapshots[-1].ranks)
    assert found.notes == ("the log tells that ranks 0-1 ended: judged by the stacks that there are of them",)


def test_who_died_without_a_stack_has_ended_and_survivors_sigterm_says_nothing() -> None:
    ranks = ranks_of(
        a_file("rank0.txt", a_dump(10, *WAITS)),
        a_file("train.log", a_fact("root_failure", rank=1, code=-9), a_fact("failure", rank=0, code=-15)),
    )
    assert ranks[0].exit is None
    assert ranks[1].exit is not None
    assert ranks[1].exit.code == -9


def test_a_fact_with_a_process_number_gets_the_rank_of_that_process() -> None:
    ranks = ranks_of(
        a_file("rank1.txt", a_dump(11, *WAITS)),
        a_file("rank0.txt", a_dump(10, trouble="no such process")),
        a_file("train.log", a_fact("root_failure", pid=10, code=-9)),
    )
    assert ranks[0].exit is not None
    assert ranks[0].exit.code == -9


def test_a_damaged_rank_number_makes_no_million_rows() -> None:
    found = gathered(
        a_file("rank1.txt", a_dump(10, *WAITS)),
        a_file("rank0.json", a_record(0, 1, 1 << 40)),
        a_file("rank999999.txt", a_dump(11, *STUCK)),
    )
    assert len(found.snapshots[-1].ranks) == 1 << 17
    assert found.unplaced == {"ranks that no job has (beyond 131072)": 1}


def test_nothing_at_all_is_a_job_without_ranks() -> None:
    found = gathered(a_file("train.log"))
    assert found.snapshots[0].ranks == ()
    assert found.snapshots[0].world_size == 0


def in_channels(*channels: str, pids: Sequence[int] | None = None) -> list[StackDump]:
    """A dump behind each prefix; without process numbers, as faulthandler writes them."""
    return [
        replace(a_dump(pids[at] if pids else 0, *WAITS, source="faulthandler"), channel=channel)
        for at, channel in enumerate(channels)
    ]


@pytest.mark.parametrize("name", ["job7.log", "run42.txt", "attempt2.log", "worker-0.log", "slurm-9.out"])
@pytest.mark.parametrize(
    "channels",
    [
        ["0:", "1:", "2:", "3:"],
        ["[default0]:", "[default1]:", "[default2]:", "[default3]:"],
        ["[h@1,0]<stderr>:", "[h@1,1]<stderr>:", "[h@1,2]<stdout>:", "[h@1,3]<stderr>:"],
        ["[pod/a-master-0/c]", "[pod/a-worker-0/c]", "[pod/a-worker-1/c]", "[pod/a-worker-2/c]"],
        ["w-1  |", "w-2  |", "w-3  |", "w-4  |"],
        ["n-0 app[4000]:", "n-1 app[4001]:", "n-2 app[4002]:", "n-3 app[4003]:"],
    ],
)
def test_a_file_with_lines_of_several_sources_has_no_rank_by_its_name(name: str, channels: list[str]) -> None:
    found = gathered(a_file(name, *in_channels(*reversed(channels), pids=[13, 12, 11, 10])))
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid) for rank in snapshot.ranks] == [(0, 10), (1, 11), (2, 12), (3, 13)]
    assert any(
        "taken from what stands before" in note or "numbered in the order" in note for note in found.notes
    )


def test_a_name_that_says_rank_yields_to_prefixes_that_number_several() -> None:
    found = gathered(a_file("rank3.log", *in_channels("0:", "1:", "2:", pids=[10, 11, 12])))
    assert [rank.pid for rank in found.snapshots[-1].ranks] == [10, 11, 12]


def test_local_numbers_in_the_logs_of_several_pods_are_local_ranks() -> None:
    channels = ["[default0]:", "[default1]:"]
    found = gathered(
        a_file("worker-0.log", *in_channels(*channels, pids=[10, 11])),
        a_file(
            "worker-1.log", *in_channels(*channels, pids=[10, 11])
        ),  # containers count from the same number
    )
    assert [(rank.rank, rank.node) for rank in found.snapshots[-1].ranks] == [
        (0, "worker-0"),
        (1, "worker-0"),
        (2, "worker-1"),
        (3, "worker-1"),
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["stack1.txt", "stack2.txt", "stack3.txt", "stack4.txt"],
        ["trn4.txt", "trn9.txt", "trn17.txt", "trn30.txt"],
        ["10-0-0-4.txt", "10-0-0-5.txt", "10-0-0-6.txt", "10-0-0-7.txt"],
        [f"stack_2026-11-29_10-11-{second}.txt" for second in ("00", "01", "02", "03")],
        [f"dump-{at}-of-4.txt" for at in range(4)],
        [f"{at}_stack.txt" for at in range(4)],
        ["llama-master-0.txt", "llama-worker-0.txt", "llama-worker-1.txt", "llama-worker-2.txt"],
        [
            "host0-local-rank-0.txt",
            "host0-local-rank-1.txt",
            "host1-local-rank-0.txt",
            "host1-local-rank-1.txt",
        ],
        ["node-0/0.txt", "node-0/1.txt", "node-1/0.txt", "node-1/1.txt"],
        [f"tp_rank{at % 2}_dp_rank{at // 2}.txt" for at in range(4)],
    ],
)
def test_numbers_in_names_neither_invent_ranks_nor_lose_dumps_and_are_told(names: list[str]) -> None:
    found = gathered(*(a_file(name, a_dump(10 + at, *WAITS)) for at, name in enumerate(names)))
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid) for rank in snapshot.ranks] == [(0, 10), (1, 11), (2, 12), (3, 13)]
    assert not found.unplaced
    assert found.notes


def test_what_a_rank_says_behind_a_prefix_is_of_the_rank_whose_dump_stands_behind_it() -> None:
    said = replace(a_fact("raised", "ValueError: x"), channel="[default1]:")
    found = gathered(a_file("worker-0.log", *in_channels("[default0]:"), said))
    assert found.facts[0].rank is None
    found = gathered(a_file("worker-0.log", *in_channels("[default0]:", "[default1]:"), said))
    assert found.facts[0].rank == 1


def test_a_name_with_a_number_that_no_job_has_is_told_when_it_is_not_taken() -> None:
    found = gathered(a_file("rank99999999999.txt", a_dump(10, *WAITS)))
    assert found.notes == ("ranks are not named anywhere: numbered in the order of the files",)


def test_a_time_in_the_names_of_looks_is_theirs() -> None:
    found = gathered(
        *(
            a_file(f"rank{rank}_20240129T2{hour}5438.txt", a_dump(10 + rank, *WAITS))
            for rank in (0, 1)
            for hour in (1, 2)
        )
    )
    first, second = ([rank.time for rank in look.ranks] for look in found.snapshots)
    assert [late - early for early, late in zip(first, second, strict=True)] == [3600.0, 3600.0]
    numbered = gathered(a_file("rank0.1.txt", a_dump(10, *WAITS)), a_file("rank0.2.txt", a_dump(10, *WAITS)))
    assert [rank.time for look in numbered.snapshots for rank in look.ranks] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("sample", "seconds"), [(20240129215438, 1706565278.0), (7, 0.0), (None, 0.0), (99999999999999, 0.0)]
)
def test_only_fourteen_digits_that_are_a_date_are_a_time(sample: int | None, seconds: float) -> None:
    assert time_of(sample) == seconds


def test_ranks_that_only_prefixes_show_are_ranks_of_the_job() -> None:
    text = "".join(f"[default{rank}]:[rank{rank}]:step 1 loss 2.0\n" for rank in range(4))
    found = gathered(Source("train.log", read_name(["train.log"]), read(text)))
    assert found.snapshots[-1].world_size == 4


def test_a_handled_exception_is_no_end() -> None:
    ranks = ranks_of(a_file("rank1.log", a_fact("handled", "OSError: try again")), a_file("rank0.log"))
    assert ranks[1].exit is None


@pytest.mark.parametrize(
    ("kind", "code", "word"),
    [("raised", None, "rank 1 raised an exception"), ("signalled", -15, "rank 1 got SIGTERM")],
)
def test_that_an_end_came_behind_a_stack_is_not_invented(kind: FactKind, code: int | None, word: str) -> None:
    fact = a_fact(kind, "OSError: no", rank=1, code=code)
    found = gathered(
        a_file("rank0.txt", a_dump(10, *WAITS)),
        a_file("rank1.txt", a_dump(11, *STUCK)),
        a_file("train.log", fact),
    )
    assert found.notes == (f"the log tells that {word}: judged by the stacks that there are of them",)


FAILED = "torch/distributed/elastic/api.py:833] failed (exitcode: {}) local_rank: {} (pid: {}) of binary: p"
SENT = "torch/distributed/elastic/api.py:858] Sending process {} closing signal SIGTERM"


def agents_log(*lines: str, name: str = "torchrun.log") -> Source:
    return Source(name, read_name(name.split("/")), read("\n".join(lines) + "\n"))


def ends_of(*sources: Source) -> dict[int, int | None]:
    return {rank: one.exit.code for rank, one in ranks_of(*sources).items() if one.exit is not None}


def test_whom_the_agent_names_by_its_number_on_the_node_is_that_rank_on_a_job_of_one_node() -> None:
    log = agents_log(SENT.format(10), SENT.format(12), FAILED.format("-9", 1, 11))
    assert ends_of(a_file("rank0.txt", a_dump(10, *WAITS)), a_file("rank2.txt", a_dump(12, *WAITS)), log) == {
        1: -9
    }
    alone = agents_log(SENT.format(10), FAILED.format("86", 0, 11))
    assert ends_of(alone) == {0: 86}


def test_on_a_node_of_several_the_known_processes_tell_where_its_ranks_begin() -> None:
    dumps = [a_file(f"rank{rank}.txt", a_dump(10 + rank, *WAITS)) for rank in range(8) if rank != 5]
    second = agents_log(
        *(SENT.format(10 + rank) for rank in (4, 6, 7)), FAILED.format("1", 1, 99), name="n1.log"
    )
    assert ends_of(*dumps, second) == {5: 1}


def test_whom_the_agent_names_stays_nameless_where_its_node_is_not_known() -> None:
    dumps = [a_file(f"rank{rank}.txt", a_dump(10 + rank, *WAITS)) for rank in range(7)]
    assert ends_of(*dumps, agents_log(SENT.format(90), FAILED.format("1", 1, 99))) == {}
    assert (
        ends_of(agents_log(FAILED.format("1", 1, 9)), agents_log(FAILED.format("1", 0, 9), name="b.log"))
        == {}
    )


def behind(channel: str, fact: LogFact) -> LogFact:
    return replace(fact, channel=channel)


SPOKEN = [behind(f"{at}:", a_fact("raised", f"ValueError: {at}")) for at in (0, 2, 3)]


@pytest.mark.parametrize("beside", ["rank1.pyspy.txt", "rank1.json", "stack.txt", "nccl_trace_rank_1"])
def test_prefixes_number_the_lines_of_a_log_whatever_lies_beside_it(beside: str) -> None:
    dumped = a_record(0, 1, 2, 3) if beside.startswith("nccl") else a_dump(70, *WAITS)
    found = gathered(a_file("slurm-9.out", *SPOKEN), a_file(beside, dumped))
    assert [fact.rank for fact in found.facts] == [0, 2, 3]
    ended = [rank.rank for rank in found.snapshots[-1].ranks if rank.exit is not None]
    assert ended == [0, 2, 3]


def test_each_log_is_read_by_its_own_prefixes() -> None:
    channels = in_channels("[default0]:", "[default1]:")
    found = gathered(a_file("n-0/slurm-9.out", *SPOKEN), a_file("n-1/slurm-9.out", *channels))
    assert [fact.rank for fact in found.facts] == [0, 2, 3]


@pytest.mark.parametrize(
    "other",
    [
        behind("0: [rank5]:", a_fact("watchdog_timeout", "x", rank=5)),
        behind("1:", a_fact("root_failure", "x", rank=11, code=1)),
    ],
)
def test_prefixes_of_nodes_are_no_ranks_where_the_lines_name_others(other: LogFact) -> None:
    said = [behind(f"{at}:", a_fact("raised", f"ValueError: {at}")) for at in (0, 1)]
    found = gathered(a_file("slurm-9.out", *said, other), a_file("rank1.txt", a_dump(70, *WAITS)))
    assert {fact.rank for fact in found.facts if fact.kind == "raised"} == {None}


def test_prefixes_of_pods_are_no_ranks_where_the_job_has_more_of_them() -> None:
    said = [behind(f"worker-{at} |", a_fact("raised", f"ValueError: {at}")) for at in (0, 1)]
    stacks = [a_file(f"rank{rank}.txt", a_dump(70 + rank, *WAITS)) for rank in range(4)]
    assert {fact.rank for fact in gathered(a_file("job.log", *said), *stacks).facts} == {None}
    assert [fact.rank for fact in gathered(a_file("job.log", *said), *stacks[:2]).facts] == [0, 1]
