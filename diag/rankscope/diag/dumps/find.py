"""Which files a user meant by naming files and folders: dumps, logs and stored snapshots.

Folders are walked; hidden files and what by its ending can be no dump (weights, images, archives) are left
out, and counted. It opens no file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.dumps.inputs import MACHINERY
from rankscope.diag.dumps.names import natural
from rankscope.diag.errors import UsageError

STANDARD_INPUT: Final = "-"
SNAPSHOT_NAMES: Final = ("snapshot-a.json.zst", "snapshot-b.json.zst")
_OURS: Final = frozenset({*SNAPSHOT_NAMES, "diagnosis.json", "decision.json"})
"""Files beside a stored snapshot that are read with it, or say nothing that it does not."""
_WEIGHTS: Final = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".onnx", ".npy", ".npz", ".h5", ".hdf5")
_TABLES: Final = (".parquet", ".arrow", ".feather", ".db", ".sqlite", ".page", ".lock")
_ARCHIVES: Final = (".zip", ".tar", ".tgz", ".whl")
_CODE: Final = (".so", ".a", ".o", ".pyc", ".py")
_MEDIA: Final = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".mp4", ".wav", ".pdf", ".html")
_NO_DUMPS: Final = frozenset((*_WEIGHTS, *_TABLES, *_ARCHIVES, *_CODE, *_MEDIA))
_MOST_FILES: Final = 100_000


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read.

    Attributes:
        path: where it lies, ``None`` for standard input.
        parts: its path below the folder that was named, for ``read_name``; empty for standard input.
        shown: how messages name it.
        is_named: whether the user named it, and not a folder it lies in.
    """

    path: Path | None
    parts: tuple[str, ...]
    shown: str
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What was named.

    Attributes:
        files: dumps and logs, in natural order of their names.
        stored: folders with snapshots of ours.
        left_out: endings of files that were passed over, and how many of each.
    """

    files: tuple[InputFile, ...]
    stored: tuple[Path, ...]
    left_out: dict[str, int]


def find_inputs(paths: Sequence[Path]) -> Found:
    """Everything below the paths; ``-`` is standard input. A file that is named twice is read once.

    Raises:
        UsageError: a path does not exist or is a folder that cannot be listed, or there are far too many
            files.
    """
    search = _Search(is_one_of_several=len(paths) > 1)
    for path in paths:
        search.add(path)
    named = sorted(
        (file for file in search.files.values() if file.parts), key=lambda file: natural(file.shown)
    )
    ordered = [*named, *(file for file in search.files.values() if not file.parts)]
    return Found(tuple(ordered), tuple(search.stored), search.left_out)


class _Search:
    """What was found so far, each file once."""

    def __init__(self, *, is_one_of_several: bool) -> None:
        self.files: dict[Path | None, InputFile] = {}
        self.stored: dict[Path, None] = {}
        self.left_out: dict[str, int] = {}
        self._is_one_of_several = is_one_of_several

    def add(self, path: Path) -> None:
        """A path that the user named."""
        if str(path) == STANDARD_INPUT:
            if sys.stdin is None:
                raise UsageError("standard input is closed")
            self.files[None] = InputFile(None, (), "standard input", is_named=True)
        elif not _exists(path):
            raise UsageError(f"no such file: {path}")
        elif path.is_dir():
            for below in _walk(path):
                self._add_below(path, below)
        elif path.name in SNAPSHOT_NAMES:
            self.stored[path.parent.resolve()] = None
        else:
            shown = _written([str(path)])[0]
            # A pipe that the shell made (``<(kubectl logs a)``) has a number that is the shell's.
            parts = _written(part for part in path.parts if part not in ("/", ".", ".."))
            is_nameless = path.is_fifo() or path.is_char_device() or path.parts[:2] in MACHINERY
            file = InputFile(path, () if is_nameless else parts, shown, is_named=True)
            self.files.setdefault(path.resolve(), file)

    def _add_below(self, root: Path, path: Path) -> None:
        """A file that lies in a folder."""
        ending = path.suffix.lower()
        if path.name in _OURS and any((path.parent / name).is_file() for name in SNAPSHOT_NAMES):
            self.stored[path.parent.resolve()] = None
        elif ending in _NO_DUMPS:
            self.left_out[ending] = self.left_out.get(ending, 0) + 1
        else:
            parts = _written(path.relative_to(root).parts)
            # The name of a folder says something (a host, a rank) where several were given.
            above = _written([root.resolve().name]) if self._is_one_of_several else ()
            self.files.setdefault(path.resolve(), InputFile(path, (*above, *parts), "/".join(parts)))
            if len(self.files) > _MOST_FILES:
                raise UsageError(f"{root}: more than {_MOST_FILES} files")


def _written(parts: Iterable[str]) -> tuple[str, ...]:
    """Names as they may stand in JSON: a file system takes any bytes."""
    return tuple(os.fsencode(part).decode("utf-8", "replace") for part in parts)


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, natural order; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename}: {error.strerror}") from error

    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural)
        for name in sorted(names, key=natural):
            path = Path(here, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
