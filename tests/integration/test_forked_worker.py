"""A worker that is forked from its agent inherits what the agent has left to be collected."""

from __future__ import annotations

import subprocess
import sys

from tests.deadline import DEADLINE

FORKS = """
import gc, os
from torch.distributed import TCPStore
from rankscope.watchdog.probe.entry import ProbedEntrypoint

class Round: pass

gc.disable()  # the garbage is still there when the worker is forked
for _ in range(20):
    left = Round()
    left.itself, left.store = left, TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    del left
entry = ProbedEntrypoint(gc.collect)
pid = os.fork()
if pid == 0:
    entry()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os._exit(0)
"""


def test_stores_that_the_agent_has_left_do_not_end_a_forked_worker() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    assert done.stdout == "0\n"
