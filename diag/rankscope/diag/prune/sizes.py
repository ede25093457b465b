"""What a folder takes on the disk. No link is followed; what cannot be read counts as nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_BLOCK: Final = 512
"""Bytes of a unit of ``st_blocks``, whatever the file system's own block is."""


def folder_bytes(path: Path) -> int:
    """Bytes of disk that a folder and all below it take."""
    total = 0
    waiting = [str(path)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total
