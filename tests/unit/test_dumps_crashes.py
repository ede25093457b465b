"""What faulthandler writes when a process crashes: an end, and where it was."""

from __future__ import annotations

import pytest
from tests.dumps_factory import WAITS, a_dump, a_file, gathered, ranks_of
from tests.reading_factory import read

from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import RankSnapshot

STACK = """

Thread 0x00007f57c9f71740 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 973 in _bootstrap

Current thread 0x00007f57caf71740 (most recent call first):
  File "/usr/lib/python3.11/site-packages/decoder/core.py", line 9 in decode
  File "/app/data.py", line 40 in read_sample
  File "/app/train.py", line 90 in <module>

Extension modules: numpy.core._multiarray_umath (total: 1)
"""
WORKER = STACK.replace("read_sample", "_worker_loop")
WATCHDOG = (
    "[rank{0}]:[E606 09:09:08.1 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600020 "
    "milliseconds before timing out.\n"
)


def a_log(name: str, text: str) -> Source:
    return Source(name, read_name([name]), read(text))


def beside_waiting(*sources: Source) -> dict[int, RankSnapshot]:
    return ranks_of(
        *(a_file(f"rank{rank}.pyspy.txt", a_dump(10 + rank, *WAITS)) for rank in (0, 1)), *sources
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Segmentation fault", -11),
        ("Bus error", -7),
        ("Illegal instruction", -4),
        ("Floating point exception", -8),
        ("Floating-point exception", -8),
        ("Aborted", -6),
        ("none_dealloc: deallocating None", -6),
    ],
)
def test_a_crash_is_an_end_by_its_signal_at_the_users_line(words: str, code: int) -> None:
    ranks = beside_waiting(a_log("rank2.log", f"step 1\nFatal Python error: {words}{STACK}"))
    end = ranks[2].exit
    assert end is not None
    assert (end.code, end.message) == (code, f"Fatal Python error: {words}")
    assert end.frame is not None
    assert (end.frame.file, end.frame.line) == ("/app/data.py", 40)
    assert ranks[0].exit is ranks[1].exit is None


def test_the_dump_behind_the_header_tells_whose_crash_it_is() -> None:
    text = "".join(
        f"[rank2]: {line}\n" for line in f"Fatal Python error: Segmentation fault{STACK}".splitlines()
    )
    assert {rank for rank, one in beside_waiting(a_log("train.log", text)).items() if one.exit} == {2}


def test_a_loader_workers_crash_is_no_end_of_its_rank() -> None:
    log = a_log("rank2.log", f"Fatal Python error: Segmentation fault{WORKER}")
    assert beside_waiting(log)[2].exit is None
    assert [(fact.kind, fact.rank) for fact in gathered(log).facts] == [("child_crashed", 2)]


@pytest.mark.parametrize("ranks", [(2,), (2, 3)])
def test_ranks_that_a_watchdog_ended_are_judged_by_their_stacks(ranks: tuple[int, ...]) -> None:
    logs = [
        a_log(f"rank{rank}.log", f"{WATCHDOG.format(rank)}Fatal Python error: Aborted{STACK}")
        for rank in ranks
    ]
    found = beside_waiting(*logs)
    assert not any(one.exit for one in found.values())
    assert all(found[rank].observed for rank in ranks)


def test_several_that_abort_are_no_cause_beside_one_that_was_killed() -> None:
    aborted = [a_log(f"rank{rank}.log", f"Fatal Python error: Aborted{STACK}") for rank in (2, 3)]
    assert not any(one.exit for one in beside_waiting(*aborted).values())
