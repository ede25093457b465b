"""Texts of source lines that any dump gives, for all frames of the same line.

pystack and gdb print the line, py-spy and faulthandler do not; files are written in full or short. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rankscope.diag.model import Frame, ThreadStack

_AMBIGUOUS: Final = ""


class SourceTexts:
    """What the dumps say stands on a line."""

    def __init__(self, dumps: Iterable[Sequence[ThreadStack]]) -> None:
        self._lines: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
        for threads in dumps:
            for thread in threads:
                for frame in thread.frames:
                    if frame.source and frame.line:
                        self._lines[_name(frame.file), frame.line].setdefault(frame.file, frame.source)

    def fill(self, threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
        """The threads with the text of every line that is known."""
        if not self._lines:
            return tuple(threads)
        return tuple(
            msgspec.structs.replace(thread, frames=tuple(self._filled(frame) for frame in thread.frames))
            for thread in threads
        )

    def _filled(self, frame: Frame) -> Frame:
        if frame.source or frame.kind != "python" or not frame.line:
            return frame
        text = self._text(frame)
        return msgspec.structs.replace(frame, source=text) if text else frame

    def _text(self, frame: Frame) -> str:
        known = self._lines.get((_name(frame.file), frame.line))
        if not known:
            return ""
        if frame.file in known:
            return known[frame.file]
        texts = {text for file, text in known.items() if _ends_alike(file, frame.file)}
        return texts.pop() if len(texts) == 1 else _AMBIGUOUS


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def _ends_alike(first: str, second: str) -> bool:
    """Whether one is the short form of the other: ``torch/_ops.py`` of ``/venv/torch/_ops.py``."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    return longer == shorter or (bool(shorter) and longer.endswith(f"/{shorter}"))
