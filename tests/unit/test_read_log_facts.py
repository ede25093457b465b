"""The reader of log lines that tell of a job's end, on real logs and on the forms of other versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope.diag.model import Frame
from rankscope.diag.read import LogFact
from rankscope.diag.read.log_facts import ANCHORS, FactReader

LOGS = Path(__file__).parents[1] / "data" / "logs"
RANK = re.compile(r"\[rank(\d+)\]: ?")


def facts_of(text: str) -> list[LogFact]:
    """Read as the stream does: a reader for each writer, fed where an anchor is or when it asks for more."""
    readers: dict[int | None, FactReader] = {}
    wanted: dict[int | None, bool] = {}
    for number, line in enumerate(text.splitlines(), 1):
        prefix = RANK.match(line)
        rank = int(prefix[1]) if prefix else None
        body = line[prefix.end() :] if prefix else line
        if wanted.get(rank) or any(anchor.decode() in body for anchor in ANCHORS):
            reader = readers.setdefault(rank, FactReader())
            wanted[rank] = reader.feed(body, number=number, rank=rank)
    return sorted((fact for one in readers.values() for fact in one.close()), key=lambda fact: fact.line)


def log(name: str) -> list[LogFact]:
    return facts_of((LOGS / f"{name}.txt").read_text())


def only(facts: list[LogFact], kind: str) -> list[LogFact]:
    return [fact for fact in facts if fact.kind == kind]


def one(text: str) -> LogFact:
    (fact,) = facts_of(text)
    return fact


@pytest.mark.parametrize(
    ("name", "root", "code", "others"),
    [
        ("killed", 1, -9, {0: -15, 2: -15}),
        ("raised", 2, 1, {0: -15, 1: -15}),
        ("monitored_barrier", 0, 1, {1: 1, 2: -15}),
        ("store_get", 1, 1, {0: -15, 2: -15}),
        ("recv", 1, 1, {0: -15, 2: -15}),
        ("error_file", 1, 1, {0: -15, 2: -15}),
    ],
)
def test_a_real_summary_of_torchrun_gives_every_failure_and_the_root(
    name: str, root: int, code: int, others: dict[int, int]
) -> None:
    facts = log(name)
    (cause,) = only(facts, "root_failure")
    assert cause.exit is not None
    assert (cause.rank, cause.exit.code) == (root, code)
    assert cause.pid > 0
    assert cause.time is not None
    assert cause.time > 1.7e9
    listed = [fact for fact in only(facts, "failure") if fact.rank is not None]
    assert {fact.rank: fact.exit.code for fact in listed if fact.exit} == others
    (agent,) = [fact for fact in only(facts, "failure") if fact.rank is None]
    assert agent.exit is not None
    assert (agent.pid, agent.exit.code) == (cause.pid, code)
    stopped = {fact.pid for fact in only(facts, "signalled")}
    assert stopped == {fact.pid for fact in listed if fact.exit and fact.exit.code == -15}


def test_a_summary_names_the_signal_and_the_host() -> None:
    (cause,) = only(log("killed"), "root_failure")
    assert cause.exit is not None
    assert cause.exit.message.startswith("Signal 9 (SIGKILL) received by PID")
    assert "host: localhost" in cause.text
    assert "(SIGKILL)" in cause.text


def test_a_summary_with_an_error_file_gives_the_last_line_and_the_user_s_frame() -> None:
    (cause,) = only(log("error_file"), "root_failure")
    assert cause.exit is not None
    assert cause.exit.message == "ValueError: in record"
    assert cause.exit.frame == Frame(
        "main", "/app/ml/exp.py", 67, source='if r==1: raise ValueError("in record")'
    )


def test_an_uncaught_exception_gives_its_line_and_the_user_s_innermost_frame() -> None:
    raised = {fact.rank: fact for fact in only(log("raised"), "raised")}
    assert raised.keys() == {0, 1, 2}  # of the agent's own traceback nothing
    assert raised[2].text == "ValueError: bad sample 17"
    assert raised[2].exit is not None
    assert raised[2].exit.frame is not None
    assert (raised[2].exit.frame.file, raised[2].exit.frame.line) == ("/app/ml/exp.py", 39)
    assert raised[0].exit is not None
    assert raised[0].exit.frame == Frame("<module>", "/app/ml/exp.py", 40, source="dist.all_reduce(t)")


def test_who_lost_a_connection_is_said_beside() -> None:
    assert {fact.rank for fact in only(log("raised"), "connection_closed")} == {0, 1}
    assert {fact.rank for fact in only(log("killed"), "connection_closed")} == {0, 2}


def test_waits_in_vain_have_their_time() -> None:
    (stored,) = only(log("store_get"), "wait_timeout")
    assert (stored.rank, stored.seconds) == (1, 2.0)
    (received,) = only(log("recv"), "wait_timeout")
    assert (received.rank, received.seconds) == (1, 4.0)


def test_monitored_barrier_names_who_waited_and_who_did_not_come() -> None:
    facts = log("monitored_barrier")
    assert next((fact.rank, fact.seconds) for fact in only(facts, "wait_timeout")) == (0, 2.0)
    assert [fact.rank for fact in only(facts, "flight_recorder")] == [2]
    several = facts_of("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 3000 ms")
    assert [(fact.kind, fact.rank) for fact in several] == [
        ("wait_timeout", 0),
        ("flight_recorder", 1),
        ("flight_recorder", 2),
    ]


def test_a_mismatch_gives_both_sides() -> None:
    found = {fact.rank: fact for fact in only(log("mismatch_op"), "mismatch")}
    assert found.keys() >= {1, 2}
    assert found[1].record is not None
    (own,) = found[1].record.entries
    assert (own.op, own.seq, own.input_sizes, own.input_dtypes) == ("broadcast", 1, ((4,),), ("Float",))
    assert found[1].other is not None
    rank, record = found[1].other
    assert rank == 0
    assert record.entries[0].op == "all_reduce"


@pytest.mark.parametrize("name", ["mismatch_shape", "mismatch_barrier"])
def test_what_torch_misreads_of_the_other_side_is_left_out(name: str) -> None:
    """Torch prints SCATTER or REDUCE there, whatever the other rank is in."""
    for fact in only(log(name), "mismatch"):
        assert fact.record is not None
        assert fact.record.entries[0].op in {"all_reduce", "barrier"}
        assert fact.other is not None
        assert fact.other[1].entries == ()
    wide = {fact.rank: fact.record for fact in only(log("mismatch_shape"), "mismatch")}[1]
    assert wide is not None
    assert wide.entries[0].input_sizes == ((5, 2),)
    assert wide.entries[0].input_dtypes == ("Double",)


def test_mp_spawn_tells_how_a_process_ended() -> None:
    (killed,) = log("spawn_killed")
    assert killed.kind == "failure"
    assert killed.rank is None
    assert killed.exit is not None
    assert killed.exit.code == -9
    (raised,) = log("spawn_raised")
    assert (raised.kind, raised.text) == ("raised", "ValueError: spawned")
    left = one(
        "Traceback (most recent call last):\n"
        '  File "/a.py", line 1, in f\n'
        "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with exit code 7"
    )
    assert left.exit is not None
    assert left.exit.code == 7


CAUGHT = "Watchdog caught collective operation timeout:"
WORK = "WorkNCCL(SeqNum=1580, OpType=_ALLGATHER_BASE, NumelIn=16, NumelOut=32, Timeout(ms)=600000)"


@pytest.mark.parametrize(
    ("line", "rank", "group"),
    [
        ("[E ProcessGroupNCCL.cpp:828] [Rank 1]", 1, None),
        ("[rank5]:[E321 ProcessGroupNCCL.cpp:607] [Rank 1]", 5, None),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 3]", 3, "0"),
        ("[PG ID 2 PG GUID 11(tp) Rank 1]", None, "11"),
        ("[rank6]: [PG ID 2 PG GUID 11(tp) Rank 1]", 6, "11"),
        ("[PG 0 Rank 2]", 2, "0"),
    ],
)
def test_a_watchdog_s_time_out_gives_the_collective(line: str, rank: int | None, group: str | None) -> None:
    fact = one(f"{line} {CAUGHT} {WORK} ran for 600067 milliseconds before timing out.")
    assert (fact.kind, fact.rank, fact.seconds) == ("watchdog_timeout", rank, 600.067)
    assert fact.text.startswith("Watchdog caught")
    assert fact.record is not None
    (entry,) = fact.record.entries
    assert (entry.op, entry.seq, entry.group) == ("_all_gather_base", 1580, group or "")
    assert (entry.input_sizes, entry.output_sizes) == (((16,),), ((32,),))
    assert entry.is_completed is False
    assert [one.name for one in fact.record.groups] == ([group] if group else [])


def test_old_watchdogs_tell_less() -> None:
    work = "WorkNCCL(OpType=ALLREDUCE, TensorShape=[2, 3], Timeout(ms)=10000)"
    fact = one(f"[Rank 0] {CAUGHT} {work} ran for 10917 milliseconds before timing out.")
    assert fact.record is not None
    assert (fact.record.entries[0].seq, fact.record.entries[0].input_sizes) == (0, ((2, 3),))
    sent = "WorkNCCL(SeqNum=3, OpType=SEND, Timeout(ms)=1)"
    fact = one(f"[Rank 1] {CAUGHT} {sent} ran for 2 milliseconds before timing out.")
    assert fact.record is not None
    assert fact.record.entries[0].is_p2p


@pytest.mark.parametrize(
    ("line", "name", "status"),
    [
        (
            (
                "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1580,"
                " last enqueued NCCL work: 1582, last completed NCCL work: 1579."
            ),
            "1",
            (1582, -1, 1579),
        ),
        (
            (
                "[PG 1 Rank 0] Timeout at NCCL work: 1580, last enqueued NCCL work: 1582,"
                " last completed NCCL work: 1579."
            ),
            "1",
            (1582, -1, 1579),
        ),
        (
            (
                "[PG ID 2 PG GUID 5(tp) Rank 1] failure detected by watchdog at work sequence id: 1580"
                " PG status: last enqueued work: 1582, last completed work: -1"
            ),
            "5",
            (1582, -1, -1),
        ),
        (
            (
                "[PG ID 2 PG GUID 5(tp) Rank 1] failure detected by watchdog at work sequence id: 1580"
                " PG status: last enqueued work: 1582, last started work: 1580, last completed work: 1579"
            ),
            "5",
            (1582, 1580, 1579),
        ),
    ],
)
def test_a_watchdog_s_status_gives_the_group_and_the_collective_found_before(
    line: str, name: str, status: tuple[int, int, int]
) -> None:
    first = (
        f"[rank4]:[E] [Rank 4] Watchdog caught collective operation timeout: {WORK} ran for 1 milliseconds"
    )
    _, fact = facts_of(f"{first}\n[rank4]:[E] {line}")
    assert fact.rank == 4
    assert fact.record is not None
    (group,) = fact.record.groups
    assert (group.name, (group.enqueued, group.started, group.completed)) == (name, status)
    (entry,) = fact.record.entries
    assert (entry.group, entry.seq, entry.op) == (name, 1580, "_all_gather_base")


DUMP = "Received a dump signal due to a collective timeout from"
PG = "[PG ID 0 PG GUID 0(default_pg) Rank 5]"
NUMBERS = "last enqueued NCCL work: {0}, last completed NCCL work: {1}."


@pytest.mark.parametrize(
    ("line", "group", "numbers"),
    [
        (f"{PG} {DUMP}  rank 0 and we will try. {NUMBERS.capitalize()}This is most", "0", (1579, 1579)),
        (f"{PG} {DUMP} this local rank and. {NUMBERS.replace('NCCL', 'XCCL')}", "0", (-1, -1)),
        (f"[PG 0 Rank 5] Received a global timeout from another rank and will. {NUMBERS}", "0", (7, 6)),
        (f"[80760] [rank5]:[E321 0:0] [PG 1 Rank 2] Timeout at NCCL work: -1, {NUMBERS}", "1", (9, 9)),
    ],
)
def test_a_rank_that_is_told_of_a_time_out_tells_how_far_it_got(
    line: str, group: str, numbers: tuple[int, int]
) -> None:
    fact = one(line.replace("nccl", "NCCL").format(*numbers))
    assert (fact.kind, fact.rank) == ("watchdog_status", 5)
    assert fact.record is not None
    (known,) = fact.record.groups
    assert (known.name, (known.enqueued, known.completed)) == (group, numbers)
    assert not fact.record.entries


def test_a_status_that_its_own_watchdog_gave_is_not_given_twice() -> None:
    facts = facts_of(
        f"[E] {PG} failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 9,"
        f" last completed work: 8\n[E] {PG} {DUMP} this local rank. {NUMBERS.format(9, 8)}"
    )
    assert [fact.kind for fact in facts] == ["watchdog_timeout"]


def test_a_status_that_is_written_now_and_then_is_no_fact() -> None:
    assert facts_of(f"[I] {PG} NCCL Work update periodically: {NUMBERS.format(5, 5)}") == []


FORMS = [row.split("\t", 3) for row in (LOGS / "forms.tsv").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "rank", "seconds", "line"), FORMS, ids=[row[3][:40] for row in FORMS])
def test_one_line_tells_one_fact(kind: str, rank: str, seconds: str, line: str) -> None:
    fact = one(line)
    assert (fact.kind, fact.line) == (kind, 1)
    assert fact.rank == (int(rank) if rank else None)
    assert fact.seconds == (float(seconds) if seconds else None)


def test_a_store_s_time_out_in_a_traceback_names_the_rank() -> None:
    facts = facts_of(
        'Traceback (most recent call last):\n  File "/app/train.py", line 1, in f\n'
        "RuntimeError: [6] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d"
        " key-value store by key '0', but store->get('0') got error: Socket Timeout"
    )
    assert [(fact.kind, fact.rank) for fact in facts] == [("raised", None), ("wait_timeout", 6)]


def test_nccl_s_process_is_known() -> None:
    assert one("node1:1830:1832 [1] x.cc:5 NCCL WARN Net : Connection closed by remote peer h<1>").pid == 1830


@pytest.mark.parametrize(
    "line",
    [
        "node1:1830:1832 [1] NCCL INFO [Service thread] Connection closed by localRank 0",
        "Waiting in store based barrier to initialize process group for rank: 0 (world_size=4)",
        "NCCL WARN NCCL_IB_HCA was set to mlx5",
        "a user talks about the lagging indicator of loss",
        "step 3: loss 0.5",
        "ChildFailedError is raised when a child fails",
        "Traceback (most recent call last):",
    ],
)
def test_lines_that_look_similar_tell_nothing(line: str) -> None:
    assert facts_of(f"{line}\nnext line\n") == []


def test_torch_s_desync_report_names_ranks() -> None:
    facts = facts_of(
        f"[Rank 0] {CAUGHT} {WORK} ran for 1 milliseconds\n"
        "\t - [0] Timeout at collective: ALLREDUCE, #5\n"
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "\t   - [1, 2] joined but didn't finish collective #5 (count from 1)\n"
        "\t     [3] finished collective #4, but didn't join collective #5 (count from 1)\n"
        "\t - To our best knowledge, ranks [4] are the lagging ranks that caused this timeout."
        " They never joined any collectives\n"
    )
    named = [(fact.kind, fact.rank) for fact in facts[1:]]
    assert named == [("flight_recorder", rank) for rank in (1, 2, 3, 4)]


def test_torch_s_flight_recorder_names_ranks() -> None:
    facts = facts_of(
        "error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type:"
        " 'all_reduce' does not match found collective type: 'broadcast', Culprit rank 12; Error type: X"
    )
    assert [fact.rank for fact in facts] == [1, 12]


CHAIN = """\
Traceback (most recent call last):
  File "/app/train.py", line 3, in load
    x = 1 / 0
        ~~^~~
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/train.py", line 9, in step
    raise DataError("no data")
  File "/opt/venv/lib/python3.11/site-packages/pkg/deep.py", line 1, in deep
    pass
my.package.DataError: no data
after
"""


def test_of_a_chain_of_exceptions_the_last_counts() -> None:
    fact = one(CHAIN)
    assert (fact.text, fact.line) == ("my.package.DataError: no data", 14)
    assert fact.exit is not None
    assert fact.exit.frame == Frame("step", "/app/train.py", 9, source='raise DataError("no data")')


def test_two_exceptions_that_are_no_chain_are_two() -> None:
    single = "\n".join(CHAIN.splitlines()[:5])
    assert len(facts_of(f"{single}\nretrying\n{single}\n{single}")) == 3


def test_an_exception_of_libraries_alone_has_no_frame_of_the_user() -> None:
    fact = one(
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1, in run\n'
        "    self()\n"
        "KeyError\n"
    )
    assert fact.exit is not None
    assert (fact.text, fact.exit.frame) == ("KeyError", None)


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-30 01:47:09,123 ",
        "2026-11-30T01:47:09.123Z ",
        "[2026-11-30 02:47:09.123+01:00] ",
        "1796003229.123 ",
    ],
)
def test_a_date_before_every_line_is_the_time_of_the_fact(stamp: str) -> None:
    fact = one("".join(f"{stamp}{line}\n" for line in CHAIN.splitlines()))
    assert fact.time == pytest.approx(1796003229.123)
    assert fact.exit is not None
    assert fact.exit.frame is not None
    assert fact.exit.frame.line == 9


def test_foreign_lines_in_the_middle_of_a_traceback_do_no_harm() -> None:
    lines = CHAIN.splitlines()
    lines.insert(2, "INFO loading shard 7 of 9")
    assert one("\n".join(lines)).text == "my.package.DataError: no data"


def test_the_summary_of_torch_1_9_has_the_root_first() -> None:
    facts = facts_of(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "*****************************************\n"
        "         main.py FAILED            \n"
        "=======================================\n"
        "Root Cause:\n[0]:\n  time: 2021-07-14_03:54:53\n  rank: 0 (local_rank: 0)\n"
        '  exitcode: 1 (pid: 1234)\n  error_file: <N/A>\n  msg: "Process failed with exitcode 1"\n'
        "=======================================\n"
        "Other Failures:\n[1]:\n  time: 2021-07-14_03:54:53\n  rank: 1 (local_rank: 1)\n"
        '  exitcode: -6 (pid: 1235)\n  error_file: <N/A>\n  msg: "Signal 6 (SIGABRT) received by PID 1235"\n'
        "***************************************\n"
        "CollectiveFingerPrint nothing\n"
    )
    assert [(fact.kind, fact.rank, fact.pid) for fact in facts] == [
        ("root_failure", 0, 1234),
        ("failure", 1, 1235),
    ]
    assert facts[1].exit is not None
    assert facts[1].exit.code == -6


@pytest.mark.parametrize("name", ["killed", "error_file"])
def test_a_log_that_was_cut_gives_the_failures_that_were_there(name: str) -> None:
    lines = (LOGS / f"{name}.txt").read_text().splitlines()
    whole = log(name)
    for cut in range(len(lines)):
        facts = facts_of("\n".join(lines[:cut]))
        assert [(fact.kind, fact.rank) for fact in facts] == [
            (fact.kind, fact.rank) for fact in whole if fact in facts or fact.line <= cut
        ][: len(facts)]
        tail = facts_of("\n".join(lines[cut:]))
        assert {fact.kind for fact in tail} <= {fact.kind for fact in whole}
    root = next(at for at, line in enumerate(lines) if line.startswith("Root Cause"))
    assert len(only(facts_of("\n".join(lines[root:])), "root_failure")) == 1


def test_what_follows_a_summary_is_read_too() -> None:
    text = (LOGS / "killed.txt").read_text()
    more = f"[Rank 3] {CAUGHT} {WORK} ran for 1 milliseconds"
    assert len(only(facts_of(text + more), "watchdog_timeout")) == 1
    cut = "\n".join(text.splitlines()[:-2])
    assert len(only(facts_of(f"{cut}\n{more}"), "watchdog_timeout")) == 1


def test_what_looks_like_a_failure_behind_a_summary_is_none() -> None:
    text = (LOGS / "killed.txt").read_text()
    settings = "  rank      : 5 (local_rank: 5)\n  exitcode  : 1 (pid: 7)\n"
    for more in (settings, f"[0]:\n{settings}"):
        assert facts_of(text + more) == log("killed")


def test_anchors_are_few_distinct_and_long() -> None:
    assert len(set(ANCHORS)) == len(ANCHORS) <= 18
    assert min(map(len, ANCHORS)) >= 7


def test_texts_are_bounded() -> None:
    long = f"RuntimeError: [/gloo/transport/tcp/pair.cc:1] Connection closed by peer {'x' * 100_000}"
    assert all(
        len(fact.text) <= 500
        for fact in facts_of(f'Traceback (most recent call last):\n  File "a", line 1\n{long}')
    )


HANDLED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/track.py", line 8, in log_step
[rank1]:     send(step, 3)
[rank1]: ConnectionError: the tracker did not answer"""


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (("INFO step 11 loss 2.1", "INFO step 12 loss 2.0"), "handled"),
        (("{'loss': 2.01, 'epoch': 0.1}", "retrying", "{'loss': 1.98, 'epoch': 0.2}"), "handled"),
        (("iter 7/90", "saved", "iter 8/90"), "handled"),
        (
            (
                " 3%|▎  | 30/900 [00:10<05:20, 3.0it/s]",
                " 4%|▍  | 40/900 [00:13<05:17, 3.1it/s]",
                " 5%|▌  | 50/900 [00:16<05:12, 3.0it/s]",
            ),
            "handled",
        ),
        (("INFO step 11 loss 2.1",), "raised"),
        ((" 3%|▎  | 30/900 [00:10<05:20, 3.0it/s]", " 0%|   | 0/3 [00:10<?, ?it/s]"), "raised"),
        (("tracker:  train/loss 2.1", "tracker:  train/epoch 3"), "raised"),
        (
            ("comm 0x5 rank 1 nranks 4 - Abort COMPLETE", "comm 0x6 rank 1 nranks 2 - Abort COMPLETE"),
            "raised",
        ),
    ],
)
def test_who_logs_steps_behind_a_traceback_has_survived_it(lines: tuple[str, ...], kind: str) -> None:
    others = [f"[rank0]: step {at} loss 1.0" for at in range(5)]
    text = "\n".join((HANDLED, *(f"[rank1]: {line}" for line in lines), *others))
    fact = one(text)
    assert (fact.kind, fact.rank) == (kind, 1)
    assert (fact.exit is None) == (kind == "handled")
