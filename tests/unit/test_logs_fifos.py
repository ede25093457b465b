"""FIFOs and their folder."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from rankscope.agent.logs import fifos


def test_the_folder_is_private_and_leaves_nothing_of_the_trial(tmp_path: Path) -> None:
    folder = fifos.make_fifo_folder(tmp_path / "a" / "fifos")
    assert folder == tmp_path / "a" / "fifos"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


def test_where_the_wanted_folder_cannot_be_the_run_time_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    folder = fifos.make_fifo_folder(tmp_path / "file" / "fifos")
    assert folder.parent == tmp_path / "run"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_no_place_is_left_an_os_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match="Not a directory"):
        fifos.make_fifo_folder(tmp_path / "file" / "fifos")


def test_a_writer_of_a_held_fifo_neither_waits_nor_breaks(tmp_path: Path) -> None:
    held = fifos.make_fifo(tmp_path / "fifo")
    with (tmp_path / "fifo").open("wb", buffering=0) as writer:
        writer.write(b"hello")
    assert fifos.waiting_bytes(held) == 5
    assert fifos.discard(held) == 5
    assert fifos.waiting_bytes(held) == 0
    os.close(held)


def test_many_pipes_share_what_an_ordinary_user_may_have(tmp_path: Path) -> None:
    held = fifos.make_fifo(tmp_path / "fifo")
    sizes: list[int] = []
    for pipes in (1, 16, 64, 100_000):
        fifos.widen(held, pipes=pipes)
        sizes.append(fcntl.fcntl(held, fcntl.F_GETPIPE_SZ))
    os.close(held)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 64 << 10


def test_removing_a_folder_spares_what_is_not_a_fifo(tmp_path: Path) -> None:
    folder = tmp_path / "fifos"
    folder.mkdir()
    os.close(fifos.make_fifo(folder / "fifo"))
    (folder / "note").touch()
    fifos.remove_folder(folder)
    assert [entry.name for entry in folder.iterdir()] == ["note"]
    (folder / "note").unlink()
    fifos.remove_folder(folder)
    assert not folder.exists()
