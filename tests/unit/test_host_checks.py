"""Disk, right to look at workers, and looks that block: none of them makes anybody wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.health_factory import eventually

from rankscope.agent.checks import HostChecks, capture, disk
from rankscope.agent.checks.capture import Right, judge_rights, right_to_read
from rankscope.agent.checks.disk import LITTLE_BYTES, LITTLE_FILES, NONE_BYTES, Room, judge_room, look
from rankscope.agent.checks.gpu_process import GpuProcess
from rankscope.agent.checks.slowly import LATE_AFTER, Slowly
from rankscope.agent.health.model import Check

NOBODY = 65534


@pytest.mark.parametrize(
    ("room", "status", "words"),
    [
        (Room(LITTLE_BYTES, LITTLE_FILES), "pass", "1.0 GiB free"),
        (Room(LITTLE_BYTES), "pass", "1.0 GiB free"),
        (Room(LITTLE_BYTES - 1), "warn", "1.0 GiB free: make room"),
        (Room(NONE_BYTES - 1), "warn", "63 MiB free: make room"),
        (Room(1 << 40, LITTLE_FILES - 1), "warn", "room for 999 files"),
        (Room(trouble="No space left on device"), "warn", "No space left on device; make room"),
        (Room(trouble="Read-only file system"), "warn", "Read-only file system; mend that"),
    ],
)
def test_room_is_judged(room: Room, status: str, words: str) -> None:
    check = judge_room(room)
    assert check.status == status
    assert words in check.output


def test_a_folder_that_is_still_to_be_made_is_looked_at_where_it_will_be(tmp_path: Path) -> None:
    room = look(tmp_path / "home" / "jobs" / "run-7")
    assert room.trouble == ""
    assert room.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_full_and_a_read_only_file_system_are_seen_though_they_say_nothing(tmp_path: Path) -> None:
    program = """
import os, subprocess, sys
from pathlib import Path
from rankscope.agent.checks.disk import look
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
print(look(folder).trouble)
(folder / "big").write_bytes(bytes(64 << 10))
print(look(folder).trouble)
(folder / "big").unlink()
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
print(look(folder).trouble)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "--mount", sys.executable, "-c", program, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip("this place allows no mounts")
    assert ran.stdout.splitlines() == ["", "No space left on device", "Read-only file system"], ran.stderr


@pytest.mark.parametrize(
    ("rights", "in_container", "status", "words"),
    [
        ((), False, "pass", "no workers yet"),
        (("granted", "granted"), False, "pass", ""),
        (("granted", "unknown"), True, "pass", ""),
        (("denied", "denied"), True, "warn", "workers may not be read"),
        (("denied", "denied"), True, "warn", "SYS_PTRACE to the container"),
        (("granted", "denied"), False, "warn", "some workers may not be read"),
        (("denied",), False, "warn", "see diag doctor"),
    ],
)
def test_rights_are_judged(rights: tuple[Right, ...], in_container: bool, status: str, words: str) -> None:
    check = judge_rights(rights, in_container=in_container)
    assert check.status == status
    assert words in check.output


@pytest.fixture(name="sleeper")
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_child_may_be_read_and_one_that_is_gone_is_not_known(sleeper: subprocess.Popen[bytes]) -> None:
    assert right_to_read(sleeper.pid) == "granted"
    sleeper.kill()
    sleeper.wait()
    assert right_to_read(sleeper.pid) == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user, one must be root")
def test_a_process_of_another_user_may_not_be_read(sleeper: subprocess.Popen[bytes]) -> None:
    program = (
        "import os, sys\n"
        "from rankscope.agent.checks.capture import right_to_read\n"
        f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})\n"
        "print(right_to_read(int(sys.argv[1])))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(sleeper.pid)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    assert ran.stdout == "denied\n"


def test_a_look_that_blocks_is_told_and_holds_neither_who_asks_nor_who_closes() -> None:
    free = threading.Event()
    slowly = Slowly(free.wait, 0.001, name="test-look")
    assert slowly.late(1e9) is None
    slowly.start()
    eventually(lambda: slowly._since is not None, "the look has begun")
    began = slowly._since
    assert began is not None
    assert slowly.late(began + LATE_AFTER) is None
    assert slowly.late(began + LATE_AFTER + 1) == LATE_AFTER + 1
    assert slowly.latest() is None
    slowly.close(0.0)
    free.set()
    slowly.close(5.0)
    assert slowly.latest() is True
    assert not slowly._thread.is_alive()


def test_a_look_that_raises_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    answers: Iterator[Exception | int] = iter([OSError("no"), 7])

    def raising() -> int:
        answer = next(answers, 7)
        if isinstance(answer, Exception):
            raise answer
        return answer

    slowly = Slowly(raising, 0.001, name="test-look")
    slowly.start()
    eventually(lambda: slowly.latest() == 7, "the second look")
    slowly.close(5.0)
    assert "could not take a look" in caplog.text


def test_all_checks_of_the_host_are_there_from_the_first_poll_and_end_with_it(tmp_path: Path) -> None:
    silent = [sys.executable, "-I", "-S", "-c", "input()"]
    checks = HostChecks(tmp_path, gpus=GpuProcess(silent))
    try:
        first = checks.poll(1000.0, (os.getpid(),))
        assert first[capture.NAME] == Check("pass")
        assert first["gpu"] == Check("pass", "being asked")
        assert set(first) == {capture.NAME, disk.NAME, "gpu"}
        eventually(lambda: "free" in checks.poll(1000.0, ())[disk.NAME].output, "the first look at the disk")
        assert checks.poll(1000.0, ())[capture.NAME] == Check("pass", "no workers yet")
    finally:
        checks.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "rankscope-disk"]


def test_a_disk_that_does_not_answer_is_said(tmp_path: Path) -> None:
    checks = HostChecks(tmp_path, gpus=GpuProcess([sys.executable, "-I", "-S", "-c", "input()"]))
    try:
        checks.poll(1000.0, ())
        checks._disk._since = 1000.0
        assert checks.poll(1015.0, ())[disk.NAME] == Check(
            "warn", "the file system of the records has not answered for 15 s"
        )
    finally:
        checks.close()
