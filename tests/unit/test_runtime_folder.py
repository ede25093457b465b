"""The run-time folder: whoever holds its lock keeps it, also where pids mean nothing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.deadline import DEADLINE

from rankscope.agent.services import runtime_folder as runtime
from rankscope.agent.services.runtime_folder import RuntimeFolder, remove_abandoned


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_a_folder_in_use_stays_and_an_abandoned_one_goes(root: Path) -> None:
    used = RuntimeFolder()
    abandoned = root / "rankscope-agent-1-x"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    (abandoned / "status").touch()
    remove_abandoned(root)
    assert used.path.is_dir()
    assert not abandoned.exists()
    used.remove()
    assert list(root.iterdir()) == []


def test_a_folder_that_is_just_being_made_stays(root: Path) -> None:
    (root / "rankscope-agent-2-y").mkdir()
    remove_abandoned(root)
    assert (root / "rankscope-agent-2-y").is_dir()


MAKE = """
import sys
from rankscope.agent.services.runtime_folder import RuntimeFolder
vanished = 0
for _ in range(150):
    folder = RuntimeFolder()
    vanished += not (folder.path / "lock").exists()
    folder.remove()
sys.exit(vanished > 0)
"""


def test_agents_that_start_at_once_take_no_folder_for_an_abandoned_one() -> None:
    makers = [subprocess.Popen([sys.executable, "-c", MAKE]) for _ in range(4)]
    assert [maker.wait(DEADLINE) for maker in makers] == [0] * 4


def test_a_folder_is_locked_before_anybody_sees_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def lock(fd: int, how: int) -> None:
        seen.extend(path.name for path in root.iterdir() if not path.name.startswith("."))
        fcntl.flock(fd, how)

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "fcntl", SimpleNamespace(flock=lock, LOCK_EX=fcntl.LOCK_EX))
        folder = RuntimeFolder()
    assert seen == []
    assert folder.path.name.startswith("rankscope-agent-")
    folder.remove()


def test_what_a_killed_maker_left_hidden_goes_after_a_while(root: Path) -> None:
    for name, age in (("old", 3600.0), ("new", 0.0)):
        hidden = root / f".rankscope-agent-1-{name}"
        hidden.mkdir()
        (hidden / "lock").touch()
        then = hidden.stat().st_mtime - age
        os.utime(hidden, (then, then))
    remove_abandoned(root)
    assert [path.name for path in root.iterdir()] == [".rankscope-agent-1-new"]


def test_the_folder_is_private() -> None:
    folder = RuntimeFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
