"""A closer look keeps whom a rank waits for and none of the user's values."""

from __future__ import annotations

import time
from pathlib import Path

from tests.capture_factory import first_line, running, state_of, wait_until

from rankscope.diag.capture import LONGEST_HOLD, Target, capture_ranks
from rankscope.diag.capture.closer import look_closer as capture_closer
from rankscope.diag.closer_look import look_closer
from rankscope.diag.model import JobSnapshot

RECEIVING = """
import time
def recv(buffer, src, token):
    time.sleep(1000)
print("ready", flush=True)
recv(b"", 3, "secret-value")
"""


def values_of(snapshot: JobSnapshot) -> dict[str, str]:
    frames = [frame for rank in snapshot.ranks for thread in rank.threads for frame in thread.variables]
    return dict(pair for frame in frames for pair in frame.values)


def test_a_closer_look_keeps_peers_and_none_of_the_users_values() -> None:
    with running(RECEIVING) as process:
        assert first_line(process) == ["ready"]
        wait_until(lambda: state_of(process.pid) == "S")
        snapshot = JobSnapshot("run-7", 0.0, 2, capture_ranks([Target(0, process.pid)], timeout=10.0))
        closer = look_closer(snapshot, {0, 1}, timeout=20.0)
        everything = look_closer(snapshot, {0}, timeout=20.0, local_variables=True)
        assert look_closer(snapshot, (), timeout=20.0) is snapshot
    assert {frame.kind for frame in closer.ranks[0].threads[0].frames} == {"native", "python"}
    assert values_of(closer) == {"src": "3"}
    assert "secret-value" in values_of(everything)["token"]


def test_a_rank_is_not_held_for_long_by_a_look_that_nobody_asked_for(tmp_path: Path) -> None:
    """On a busy machine C++ frames took 6.8 s, and the rank stood still for as long."""
    slow = tmp_path / "py-spy"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--nonblocking*) exit 1;; esac\n'
        'for pid; do :; done; kill -STOP "$pid"; exec sleep 1000\n'
    )
    slow.chmod(0o755)
    with running(RECEIVING) as process:
        assert first_line(process) == ["ready"]
        wait_until(lambda: state_of(process.pid) == "S")
        snapshot = JobSnapshot("run-7", 0.0, 2, capture_ranks([Target(0, process.pid)], timeout=10.0))
        closer = capture_closer(snapshot, {0}, deadline=time.monotonic() + 20.0, pyspy=str(slow))
        wait_until(lambda: state_of(process.pid) == "S")
    assert closer.ranks[0].threads == snapshot.ranks[0].threads
    assert f"did not answer in {LONGEST_HOLD:g} s and was ended, so that the process runs on" in (
        closer.ranks[0].reason or ""
    )


def test_a_rank_in_a_send_or_receive_is_asked_for_its_peer_only() -> None:
    """C++ frames of all ranks take longer than there is time (measured: eight ranks on two cores)."""
    with running(RECEIVING) as process:
        assert first_line(process) == ["ready"]
        wait_until(lambda: state_of(process.pid) == "S")
        snapshot = JobSnapshot("run-7", 0.0, 2, capture_ranks([Target(0, process.pid)], timeout=10.0))
        closer = look_closer(snapshot, {0}, messaging={0}, timeout=20.0)
    assert {frame.kind for frame in closer.ranks[0].threads[0].frames} == {"python"}
    assert values_of(closer) == {"src": "3"}
