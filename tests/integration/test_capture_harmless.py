"""Looking leaves a working rank as it was, in every way to look, also when a look is killed half-way.

A few looks each; ``python -m tests.harm`` takes 200, and compares what a step costs: three looks beside other
tests tell nothing of that (1.6 times as much, on a busy host).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.capture_factory import state_of, wait_until, waiting_process
from tests.harm import LOOKS, look_often, two_ranks

from rankscope.diag import proc

CAPTURES = 3
"""Looks of each kind; every third is killed half-way."""
CAPTURING = """
import sys
from rankscope.diag.capture import Target, capture_ranks
print("ready", flush=True)
while True:
    capture_ranks((Target(0, int(sys.argv[1])),), timeout=20, backends=(sys.argv[2],), record=False)
    print("seen", flush=True)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("extra", [1, 64])
def test_a_rank_is_after_every_way_to_look_what_it_was_before(tmp_path: Path, extra: int) -> None:
    with two_ranks(tmp_path, extra=extra) as (rank, control):
        for backend in LOOKS:
            harm = look_often(backend, rank, control, captures=CAPTURES)
            assert harm.changes == {}, backend
            assert harm.seen == CAPTURES - harm.killed, backend


@pytest.mark.parametrize("backend", ["py-spy", "pystack"])
def test_a_capturing_process_that_is_killed_leaves_its_rank_running(backend: str) -> None:
    with waiting_process() as process:
        for looks in range(4):
            with subprocess.Popen(
                [sys.executable, "-c", CAPTURING, str(process.pid), backend], stdout=subprocess.PIPE
            ) as capturing:
                assert capturing.stdout is not None
                for _line in range(1 + looks):
                    capturing.stdout.readline()
                capturing.send_signal(signal.SIGKILL)
        wait_until(lambda: state_of(process.pid) == "S")
        wait_until(lambda: proc.read_access(process.pid).traced_by == 0)
        assert not proc.read_access(process.pid).stopped
