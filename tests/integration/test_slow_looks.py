"""Many looks at a process, none of which stops it; and what ``diag analyze --samples`` takes."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Generator

import pytest
from tests.jobs import until

from rankscope.diag import proc
from rankscope.diag.capture import Target
from rankscope.diag.commands import analyze
from rankscope.diag.errors import UsageError
from rankscope.diag.model import RankSnapshot
from rankscope.diag.slow_looks import as_job, take_looks

PROGRAM = """
import socket, subprocess, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
def crunch():
    print("ready", flush=True)
    while True:
        sum(range(1000))
        time.sleep(0.001)
crunch()
"""


@pytest.fixture
def target() -> Generator[Target]:
    """A process that computes, with a child and a connection to us."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-c", PROGRAM, str(listening.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                until(lambda: bool(proc.children(process.pid)), "its child")
                with listening.accept()[0]:
                    yield Target(rank=3, pid=process.pid, start_ticks=proc.start_ticks(process.pid) or 0)
            finally:
                process.kill()  # its child reads the end of its input


def test_the_looks_show_where_it_is_and_the_outer_ones_its_children(target: Target) -> None:
    waits: list[float] = []

    def pause(seconds: float) -> bool:
        waits.append(seconds)
        return False

    looks = take_looks(lambda: [target], pause=pause, count=5, interval=0.3, chance=random.Random(1))
    assert len(looks) == 5
    assert len(waits) == 4
    for (rank,) in looks:
        assert rank.rank == 3
        assert any(frame.function == "crunch" for thread in rank.threads for frame in thread.frames), (
            rank.reason
        )
        assert any(one.remote.startswith("127.0.0.1:") for one in rank.connections)
    assert [bool(rank.children) for (rank,) in looks] == [True, False, False, False, True]
    first, last = (_facts(look[0]) for look in (looks[0], looks[-1]))
    assert last > first


def _facts(rank: RankSnapshot) -> float:
    assert rank.facts is not None
    return rank.facts.time


def test_looks_that_are_stopped_tell_nothing(target: Target) -> None:
    answers = iter([False, True])
    assert take_looks(lambda: [target], pause=lambda _seconds: next(answers), count=9, interval=0.01) == ()


def test_the_ranks_of_other_hosts_are_in_every_look() -> None:
    here, elsewhere = RankSnapshot(0, time=5.0), RankSnapshot(1, observed=False, reason="on another node")
    looks = as_job([(here,), (here,)], job="run-7", world_size=2, absent=(elsewhere,))
    assert [[one.rank for one in look.ranks] for look in looks] == [[0, 1], [0, 1]]
    assert {look.time for look in looks} == {5.0}


@pytest.mark.parametrize(
    "words", [["--samples=2"], ["--samples=-9"], ["--samples=many"], ["--samples=9", "--native"]]
)
def test_what_cannot_be_sampled_is_said(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"samples|looks"):
        analyze.main(["some-job", *words])
