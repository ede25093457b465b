"""The one way in which a file is written: beside its place, and put there when it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

_LONGEST_BESIDE: Final = 60
"""Characters of a name that its temporary one has: four bytes each at most, of the 255 that there are."""


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """A file to write beside ``path``, whose place it takes at the end; after an error or Ctrl-C it is gone.

    Raises:
        OSError: it cannot be put in place.
    """
    beside = path.with_name(f".{path.name[:_LONGEST_BESIDE]}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    except BaseException:  # KeyboardInterrupt too
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
