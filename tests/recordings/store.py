"""Stores a job's records for the notebooks: redacted, compressed, without logs and locks."""

from __future__ import annotations

import shutil
import socket
import sys
import sysconfig
from pathlib import Path
from typing import Final

import zstandard
from tests.recordings.redact import redacted

import rankscope.agent
import rankscope.diag
import rankscope.watchdog
from rankscope.diag.store.events import boot_name
from rankscope.diag.store.job import JobFolder

RECORDED: Final = Path(__file__).parents[2] / "notebooks" / "recorded"
"""A ``RANKSCOPE_HOME``: what the notebooks show where nothing else is asked for."""
_PACKAGES: Final = "/venv/lib/python3/site-packages"
_ROOMS: Final = (rankscope.agent, rankscope.diag, rankscope.watchdog)
_LEVEL: Final = 19
_KEPT: Final = ("job.json", "agent.json", "events.jsonl", "diagnosis.json", "decision.json")


def store(records: JobFolder, scratch: Path, home: Path = RECORDED) -> Path:
    """Store the records of a job, in place of those that are there.

    Args:
        records: where the job left them.
        scratch: the folder that it ran in.
        home: the ``RANKSCOPE_HOME`` they go to.

    Raises:
        ValueError: something of this machine is left in them.
    """
    places = _places(scratch)
    target = home / "jobs" / records.path.name
    texts = {path.relative_to(records.path): _text(path) for path in _files(records.path)}
    contents = {path: redacted(text, places) for path, text in texts.items()}
    shutil.rmtree(target, ignore_errors=True)
    for path, text in contents.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(_bytes(path, text))
    return target


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name in _KEPT or path.suffix == ".zst")


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (zstandard.ZstdDecompressor().decompress(data) if path.suffix == ".zst" else data).decode()


def _bytes(path: Path, text: str) -> bytes:
    data = text.encode()
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data) if path.suffix == ".zst" else data


def _places(scratch: Path) -> dict[str, str]:
    """What is only true here, and what is written instead."""
    rooms = {str(Path(room.__path__[0]).parents[1]): _PACKAGES for room in _ROOMS}
    places = {
        **rooms,
        f"{scratch}/home": "/records",
        str(scratch): "/workspace",
        sysconfig.get_path("purelib"): _PACKAGES,
        sysconfig.get_path("stdlib"): "/usr/lib/python3",
        sys.prefix: "/venv",
        sys.base_prefix: "/usr",
        str(Path.home()): "/home-of-user",
        f"{boot_name()}:": "recorded:",
        f'"{socket.gethostname()}"': '"this-host"',
    }
    return {place: instead for place, instead in places.items() if place != "/"}
