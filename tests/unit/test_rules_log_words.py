"""What torch's own words in logs add to a diagnosis."""

from __future__ import annotations

import pytest
from tests.reading_factory import read
from tests.watchdog_lines import of_log

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.dumps.gather import gather
from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import Diagnosis

BARRIER = "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms"
STUCK = "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"
PRINT = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions()), but Rank {1} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE, TensorShape=[9], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions())"
)
STATUS = (
    "[E1129 10:00:00.024 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure "
    "detected by watchdog at work sequence id: {1} PG status: last enqueued work: 5001, "
    "last completed work: {2}"
)


@pytest.mark.parametrize(
    ("lines", "culprits", "kind", "word"),
    [
        ([f"[rank0]: {BARRIER}"], (1, 3), "none", "did not come to monitored_barrier"),
        (
            [
                "[rank0]: Traceback (most recent call last):",
                '[rank0]:   File "t.py", line 3, in main',
                f"[rank0]: {BARRIER}",
            ],
            (1, 3),
            "none",
            "did not come to monitored_barrier",
        ),
        ([f"[rank3]: {STUCK}"], (3,), "native_gil", "got stuck"),
        ([f"[rank{rank}]: {PRINT.format(rank, 2)}" for rank in (0, 1, 3)], (2,), "desync", "[9]"),
        (
            [
                f"[rank{rank}]: {STATUS.format(rank, *((4999, 4998) if rank == 2 else (5000, 4999)))}"
                for rank in range(4)
            ],
            (2,),
            "none",
            "still in collective 4999",
        ),
    ],
)
def test_the_words_of_a_log_name_whom_they_name(
    lines: list[str], culprits: tuple[int, ...], kind: str, word: str
) -> None:
    diagnosis, left = of_log(*lines)
    assert (diagnosis.culprits, diagnosis.kind) == (culprits, kind)
    assert word in diagnosis.summary
    assert diagnosis.confidence in {"low", "medium"}
    assert {row.rank for row in diagnosis.ranks if row.role == "culprit"} == set(culprits)
    assert any(line.source == "log" for line in diagnosis.evidence)
    assert not left


def test_a_watchdog_that_all_ranks_say_is_stuck_accuses_nobody() -> None:
    diagnosis, _ = of_log(*(f"[rank{rank}]: {STUCK}" for rank in range(4)))
    assert (diagnosis.verdict, diagnosis.culprits) == ("Unknown", ())
    assert any("ranks 0-3" in line.fact for line in diagnosis.evidence)


def test_a_rank_whose_peer_is_gone_is_listed_with_what_it_said() -> None:
    diagnosis, _ = of_log(
        "[rank0]:[E1129 10:00:00 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=9, OpType=BROADCAST, NumelIn=5, NumelOut=5, Timeout(ms)=600000) ran for "
        "600000 milliseconds before timing out.",
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, remote process exited or "
        "there was a network error, NCCL version 2.21.5",
    )
    assert [row.rank for row in diagnosis.ranks] == [0, 1]
    assert any("network error" in line.fact and line.rank == 1 for line in diagnosis.evidence)


def test_lines_beyond_what_is_shown_are_counted_by_their_kind() -> None:
    lines = [f"[rank{rank}]: {STUCK.replace('480', str(480 + rank))}" for rank in range(40)]
    diagnosis, left = of_log(*lines)
    assert sum(line.source == "log" for line in diagnosis.evidence) == 16
    assert left == {"lines of a watchdog that got stuck, which are not shown": 24}


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB."
DESTROYS = """\
Process {0}: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread {0} (idle): "MainThread"
    destroy_process_group (torch/distributed/distributed_c10d.py:2179)
    clean_up (train.py:42)
    <module> (train.py:90)
"""
RAISED = f'Traceback (most recent call last):\n  File "train.py", line 7, in step\n    x()\n{OOM}\n'


def of_files(**texts: str) -> Diagnosis:
    sources = [
        Source(name, read_name([name]), read(text.encode()))
        for name, text in ((key.replace("_", "."), text) for key, text in texts.items())
    ]
    found = gather(sources, job="j", time=1.0)
    diagnosis = diagnose(
        (found.snapshots[-1], None), catalogue=Catalogue.load(), source_line=lambda _f, _l: None, time="t"
    )
    return with_log_facts(diagnosis, found.facts)[0]


def test_an_exception_before_the_clean_up_is_the_cause() -> None:
    found = of_files(
        rank0_txt=DESTROYS.format(10), rank1_txt=DESTROYS.format(11), rank0_log=RAISED, rank1_log=RAISED
    )
    assert (found.verdict, found.kind, found.culprits) == ("Exited", "exit", ())
    assert f"before, ranks 0-1 raised {OOM}" in found.summary
    assert [(one.source, one.fact) for one in found.evidence][-1] == ("log", f"ranks 0-1: {OOM}")


def test_an_exception_of_some_before_the_clean_up_of_all_is_told() -> None:
    found = of_files(rank0_txt=DESTROYS.format(10), rank1_txt=DESTROYS.format(11), rank1_log=RAISED)
    assert (found.verdict, found.kind) == ("Unknown", "exit")
    assert f"before, rank 1 raised {OOM}" in found.summary


WAITS = DESTROYS.replace("destroy_process_group", "barrier").replace("clean_up", "main")


@pytest.mark.parametrize(
    "words",
    [
        "Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. ",
        "WARNING: process group has NOT been destroyed before it is being destructed. ",
        "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak. ",
    ],
)
def test_who_wrote_torchs_warning_at_its_end_has_left_the_others_behind(words: str) -> None:
    line = f"[rank2]:[W1018 10:11:14.100000 ProcessGroupNCCL.cpp:1168] {words}"
    line += "On normal program exit, the application should call destroy_process_group to ensure that any\\n"
    found = of_files(rank0_txt=WAITS.format(10), rank1_txt=WAITS.format(11), train_log=line)
    assert (found.verdict, found.kind, found.culprits) == ("Exited", "exit", (2,))
    assert "rank 2 came to the end of its program" in found.summary
    assert words.strip() in found.evidence[-1].fact
    everyone = of_files(
        train_log="".join(line.replace("[rank2]", f"[rank{rank}]") for rank in range(3)),
    )
    assert (everyone.verdict, everyone.culprits) == ("Unknown", ())


def test_torchs_warning_behind_an_exception_is_no_exit_by_itself() -> None:
    log = "".join(f"[rank2]: {line}\n" for line in RAISED.splitlines())
    log += "[rank2]:[W1018 10:11:14.1 ProcessGroupNCCL.cpp:1168] Warning: destroy_process_group() was not "
    log += "called before program exit\n"
    found = of_files(rank0_txt=WAITS.format(10), rank1_txt=WAITS.format(11), train_log=log)
    assert (found.verdict, found.kind, found.culprits) == ("Exited", "dead", (2,))
    assert "rank 2 raised torch.OutOfMemoryError" in found.summary


NO_ID = (
    "{kind}: [{rank}] is setting up NCCL communicator and {retrieving} ncclUniqueId from [{of}] via c10d "
    "key-value store by key '0', but store->get('0') got error: {error}"
)


def no_id(
    rank: int,
    *,
    of: int = 0,
    error: str = "Socket Timeout",
    kind: str = "torch.distributed.DistBackendError",
    retrieving: str = "retrieving",
) -> str:
    return NO_ID.format(rank=rank, of=of, error=error, kind=kind, retrieving=retrieving)


def raised(prefix: str, text: str) -> list[str]:
    lines = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in main',
        "    dist.barrier()",
        text,
    ]
    return [f"{prefix}{line}" for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        [f"[rank{rank}]: {no_id(rank)}" for rank in (1, 2, 3)],
        [no_id(rank) for rank in (1, 2, 3)],
        [
            line
            for rank in (1, 2, 3)
            for line in raised(
                f"[rank{rank}]: ",
                no_id(
                    rank,
                    kind="RuntimeError",
                    retrieving="retreiving",
                    error="Timeout waiting for key: default_pg/0/0 after 1800000 ms",
                ),
            )
        ],
        [line for rank in (1, 2, 3) for line in raised(f"[rank{rank}]: ", no_id(rank))],
        [line for rank in (1, 2, 3) for line in raised(f"{rank}: ", no_id(rank))] + ["0: epoch 1"],
    ],
)
def test_ranks_that_wait_for_the_id_of_a_communicator_name_who_has_not_given_it(lines: list[str]) -> None:
    diagnosis, _ = of_log(*lines)
    assert (diagnosis.verdict, diagnosis.kind) == ("RankNonCommHang", "startup")
    assert (diagnosis.culprits, diagnosis.confidence, diagnosis.rule) == ((0,), "low", "log")
    assert "rank 0 has not given the id" in diagnosis.summary
    assert [row.rank for row in diagnosis.ranks if row.role == "victim"] == [1, 2, 3]


@pytest.mark.parametrize(
    "lines",
    [
        [f"[rank{rank}]: {no_id(rank - 4)}" for rank in (5, 6, 7)],  # ranks of a group
        [f"[rank1]: {no_id(1)}", f"[rank2]: {no_id(2, of=3)}"],
        [f"[rank{rank}]: {no_id(rank, error='Connection reset by peer')}" for rank in (1, 2, 3)],
        [*raised("[rank0]: ", "ValueError: no such file"), *raised("[rank1]: ", no_id(1))],
    ],
)
def test_who_has_not_given_an_id_is_not_named_where_the_lines_do_not_tell_it(lines: list[str]) -> None:
    diagnosis, _ = of_log(*lines)
    assert diagnosis.verdict != "RankNonCommHang"
    assert diagnosis.kind != "startup"


MISMATCHED = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/home/m/{2}.py", line {3}, in {2}
[rank{0}]:     dist.{2}(x)
[rank{0}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running collective: \
CollectiveFingerPrint({4}OpType={5}), but Rank {1} is running collective: \
CollectiveFingerPrint({4}OpType={6})."""
REDUCE = "ALLREDUCE, TensorShape=[16], TensorDtypes=Long, TensorDeviceTypes=x"
CAST = "BROADCAST"


@pytest.mark.parametrize("number", ["SequenceNumber=7, ", "SequenceNumber=7", ""])
def test_ranks_that_raise_because_their_calls_differ_are_a_desync(number: str) -> None:
    lines = [MISMATCHED.format(rank, 3, "train", 210, number, REDUCE, CAST) for rank in range(3)]
    own = MISMATCHED.format(3, 0, "save", 55, number, CAST, REDUCE)
    for shown in (lines, [*lines, own]):
        diagnosis, _ = of_log(*shown)
        assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("RankNonCommHang", "desync", (3,))
        assert "group ?" not in diagnosis.summary
    assert diagnosis.location is not None
    assert (diagnosis.location.file, diagnosis.location.line) == ("/home/m/save.py", 55)


def test_two_ranks_whose_calls_differ_are_both_named() -> None:
    diagnosis, _ = of_log(
        MISMATCHED.format(0, 1, "train", 210, "SequenceNumber=7, ", REDUCE, CAST),
        MISMATCHED.format(1, 0, "save", 55, "SequenceNumber=7, ", CAST, REDUCE),
    )
    assert (diagnosis.kind, diagnosis.culprits, diagnosis.confidence) == ("desync", (0, 1), "low")
    assert "a tie" in diagnosis.summary
