"""Several attempts in one log."""

from __future__ import annotations

import pytest
from tests.dumps_factory import gathered
from tests.reading_factory import read

from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source

AGENT = "torch/distributed/elastic/agent/server/api.py"
AGAIN = [
    (
        f"I0606 07:00:02.390000 313 {AGENT}:895] [default] Worker group FAILED. 2/3 attempts left; "
        "will restart worker group"
    ),
    (
        "INFO:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. 1/1 attempts left; "
        "will restart worker group"
    ),
    (
        f"I0606 07:00:02.390000 313 {AGENT}:677] [default] Detected 1 new nodes from group_rank=0; will "
        "restart worker group"
    ),
    "[2024-06-06 07:00:02,390] torch.distributed.elastic.agent.server.api: [default] Starting worker group",
    (
        f"I0606 07:00:03.490000 313 {AGENT}:525] [default] Rendezvous complete for workers. Result:\n"
        "  restart_count=1\n  master_addr=h1"
    ),
]
FAILED = f"""\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 97, in main
[rank1]: ValueError: bad batch
E0606 07:00:01.390000 313 {AGENT}:874] failed (exitcode: 1) local_rank: 1 (pid: 401) of binary: python3
"""


def of_log(text: str) -> Source:
    return Source("train.log", read_name(["train.log"]), read(text))


@pytest.mark.parametrize("line", AGAIN)
def test_what_ended_in_an_earlier_attempt_is_history(line: str) -> None:
    found = gathered(of_log(f"{FAILED}{line}\n[rank1]: step 0\n"))
    assert not any(rank.exit for rank in found.snapshots[-1].ranks)
    assert found.snapshots[-1].world_size == 2
    assert {fact.kind for fact in found.facts} == {"earlier"}
    assert "in an earlier attempt: ValueError: bad batch" in [fact.text for fact in found.facts]
    assert len(found.notes) == 1
    assert "history" in found.notes[0]


@pytest.mark.parametrize("line", AGAIN)
def test_the_newest_attempt_is_judged(line: str) -> None:
    found = gathered(of_log(f"{line}\n{FAILED}"))
    assert {rank.rank for rank in found.snapshots[-1].ranks if rank.exit} == {1}
    assert not found.notes


def test_the_first_attempt_has_no_history() -> None:
    first = f"I0606 07:00:03.490000 313 {AGENT}:525] [default] Rendezvous complete for workers. Result:\n"
    found = gathered(of_log(f"{FAILED}{first}  restart_count=0\n"))
    assert {rank.rank for rank in found.snapshots[-1].ranks if rank.exit} == {1}
