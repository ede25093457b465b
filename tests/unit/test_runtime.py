"""The run-time folder: whoever holds its lock keeps it, also where pids mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.agent.runtime import RuntimeFolder, remove_abandoned


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


def test_the_folder_is_private() -> None:
    folder = RuntimeFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
