"""What a bundle will hold, for a person: each file, its size, what was taken out. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rankscope.diag.bundle.model import Manifest
from rankscope.diag.periods import size_text
from rankscope.diag.report.text import inert

_LISTED: Final = 200
"""Files listed one by one; of a job of thousands of ranks the rest is summed up."""


def render_contents(manifest: Manifest) -> str:
    """A line a file, and the sum."""
    return "".join(f"{line}\n" for line in _lines(manifest))


def _lines(manifest: Manifest) -> Iterator[str]:
    shown = manifest.files[:_LISTED]
    for file in shown:
        parts = [_removed(file.removed), file.note]
        more = "; ".join(part for part in parts if part)
        yield f"{size_text(file.size_bytes):>9}  {inert(file.name)}{f'  ({more})' if more else ''}"
    rest = manifest.files[_LISTED:]
    if rest:
        yield f"{size_text(sum(file.size_bytes for file in rest)):>9}  ... {len(rest)} more files"
    for one in manifest.left_out[:_LISTED]:
        yield f"{'left out':>9}  {inert(one.name)}: {inert(one.reason)}"
    total = size_text(sum(file.size_bytes for file in manifest.files))
    taken = _removed(manifest.removed) or "nothing had to be removed"
    hosts = "; hosts keep their names" if manifest.hosts_kept else ""
    yield f"{len(manifest.files)} files, {total} before packing; {taken}{hosts}"


def _removed(removed: Mapping[str, int]) -> str:
    told = ", ".join(f"{what} {count}" for what, count in removed.items())
    return f"removed: {told}" if told else ""
