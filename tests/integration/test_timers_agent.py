"""Timers in a real job: evidence first, the signal last, strangers and healthy descendants left alone."""

from __future__ import annotations

import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.jobs import Job, diag_run, until

from rankscope.watchdog.timers import FileTimerClient

# Rank 0 waits for a helper of its own, which hangs in a block with a timer; what becomes of the helper and
# of rank 0 itself is written beside the script.
SCRIPT = """
import os, subprocess, sys, threading, time
from pathlib import Path
from rankscope.watchdog.timers import FileTimerClient, configure, expires

folder = Path(__file__).parent
configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"], 15))

def stuck_in_the_helper():
    with expires(after=1.0, scope="helper's block"):
        threading.Event().wait()

if "helper" in sys.argv:
    stuck_in_the_helper()
(folder / "pipe").write_text(os.environ["TORCHELASTIC_TIMER_FILE"])
while not (folder / "go").exists():
    time.sleep(0.05)
with expires(after=600.0, scope="rank's block"):
    helper = subprocess.run([sys.executable, __file__, "helper"])
(folder / "ended").write_text(f"{helper.returncode} {time.time()}")
"""


@dataclass
class Seen:
    """A job whose rank has a helper that hangs, and what was seen of it."""

    job: Job
    pipe: Path
    modes: tuple[int, int]
    exit_code: int
    helper_code: int
    helper_ended: float


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("timers")
    script = folder / "job.py"
    script.write_text(SCRIPT)
    with diag_run(folder / "job", ranks=1, script=[str(script)]) as job:
        until((folder / "pipe").exists, "the worker to name its pipe")
        pipe = Path((folder / "pipe").read_text())
        modes = stat.S_IMODE(pipe.lstat().st_mode), stat.S_IMODE(pipe.parent.stat().st_mode)
        # This process's own timer, due at once: would it count, this process would be killed.
        stranger = FileTimerClient(str(pipe), signal.SIGKILL)
        stranger.acquire("stranger", time.time())
        stranger.close()
        with pipe.open("wb", buffering=0) as raw:
            raw.write(b"\\xff\\x00 no request\\n" + b'{"version":1,"pid":1,"scope_id"')
        (folder / "go").touch()
        exit_code = job.finish()
        code, ended = (folder / "ended").read_text().split()
        yield Seen(job, pipe, modes, exit_code, int(code), float(ended))


def test_the_signal_that_was_asked_for_reaches_the_process_whose_timer_it_was(seen: Seen) -> None:
    assert seen.helper_code == -signal.SIGTERM, seen.job.stderr[-3000:]
    assert seen.exit_code == 0


def test_evidence_is_stored_before_the_signal_is_sent(seen: Seen) -> None:
    (confirmed,) = seen.job.events("incident.confirmed")
    assert "helper's block" in str(confirmed.data["reason"])
    stored = seen.job.incident().path
    written = max(path.stat().st_mtime for path in stored.iterdir() if path.name.startswith("snapshot"))
    assert written <= seen.helper_ended
    names = [event.type.removeprefix("rankscope.") for event in seen.job.events()]
    assert names.index("suspected") < names.index("incident.confirmed") < names.index("job.ended")


def test_a_strangers_timer_and_bad_lines_are_told_once_and_otherwise_without_effect(seen: Seen) -> None:
    for kind in ("malformed", "unknown_pid"):
        assert seen.job.stderr.count(f"is skipped, {kind}") == 1
    assert "stranger" not in seen.job.stderr
    assert all("stranger" not in str(event.data) for event in seen.job.events())


def test_the_pipe_is_private_and_goes_with_the_job(seen: Seen) -> None:
    assert seen.modes == (0o600, 0o700)
    assert not seen.pipe.parent.exists()
