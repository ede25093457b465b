"""Look at the ranks of this host: page, ``/proc``, events. Plain reads: nothing is traced or signalled.

A page that was replaced (a restart) is mapped anew. It must not know how anything is shown.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rankscope.diag import proc
from rankscope.diag.discover.found import FoundJob, FoundRank
from rankscope.diag.discover.namespaces import beyond_root
from rankscope.diag.discover.slots import is_slot_of
from rankscope.diag.store.event_order import merged
from rankscope.diag.store.events import Event, parse_log
from rankscope.diag.top.model import RankSample, Sample
from rankscope.watchdog.page import PageReader, SlotView

_TAIL_BYTES: Final = 256 << 10
_Identity = tuple[int, int]


class Sampler:
    """Takes samples of one job's ranks. Close it."""

    def __init__(self) -> None:
        """No page is open yet."""
        self._pages: dict[str, tuple[_Identity, PageReader]] = {}

    def take(self, job: FoundJob | None) -> Sample:
        """All ranks of a job on this host now."""
        self._close({rank.page for rank in job.ranks if rank.page} if job is not None else set())
        now = time.monotonic_ns()
        ranks = tuple(self._rank(rank, now) for rank in job.ranks) if job is not None else ()
        return Sample(now, ranks)

    def close(self) -> None:
        """Unmap all pages."""
        self._close(set())

    def _rank(self, rank: FoundRank, now: int) -> RankSample:
        facts = proc.read_facts(rank.pid, now=now * 1e-9)
        if facts is None or facts.start_ticks != rank.start_ticks:
            return RankSample(rank.rank, rank.pid, rank.start_ticks, lives=False)
        return RankSample(
            rank=rank.rank,
            pid=rank.pid,
            start_ticks=rank.start_ticks,
            lives=True,
            letter=facts.state,
            cpu_seconds=facts.main_cpu_seconds + facts.other_cpu_seconds,
            rss_bytes=proc.resident_bytes(rank.pid),
            age=max(0.0, time.time() - facts.started),
            wchan=facts.wchan,
            slot=self._slot(rank),
        )

    def _slot(self, rank: FoundRank) -> SlotView | None:
        if rank.page is None or rank.slot is None:
            return None
        page = self._page(rank)
        if page is None or not 0 <= rank.slot < page.slots:
            return None
        view = page.read(rank.slot)
        return view if is_slot_of(view, rank.pid, rank.start_ticks) else None

    def _page(self, rank: FoundRank) -> PageReader | None:
        """The page that a rank names, mapped once as long as it stays the same file."""
        name = str(rank.page)
        path = beyond_root(rank.pid, name)
        try:
            status = os.stat(path)  # noqa: PTH116 - each look
            identity = (status.st_dev, status.st_ino)
            known = self._pages.get(name)
            if known is not None and known[0] == identity:
                return known[1]
            if known is not None:
                known[1].close()
                del self._pages[name]
            page = PageReader(path)
        except OSError:
            return None
        self._pages[name] = (identity, page)
        return page

    def _close(self, wanted: set[str]) -> None:
        for name in [name for name in self._pages if name not in wanted]:
            self._pages.pop(name)[1].close()


class EventFollower:
    """The newest events of a job's nodes; a log is read again when it has changed."""

    def __init__(self, folder: Path | None) -> None:
        """Nothing is read yet; ``None`` is a job without records."""
        self._folder = folder
        self._known: dict[Path, tuple[_Identity, tuple[Event, ...]]] = {}

    def events(self) -> list[Event]:
        """The events at the ends of all logs, in order of time."""
        return merged([self._of(path) for path in self._logs()])

    def _logs(self) -> Sequence[Path]:
        return sorted(self._folder.glob("nodes/*/events.jsonl")) if self._folder is not None else ()

    def _of(self, path: Path) -> tuple[Event, ...]:
        try:
            status = path.stat()
            identity = (status.st_ino, status.st_size)
            known = self._known.get(path)
            if known is not None and known[0] == identity:
                return known[1]
            events = tuple(_end_of(path, status.st_size))
        except OSError:
            return ()
        self._known[path] = (identity, events)
        return events


def _end_of(path: Path, size: int) -> Iterator[Event]:
    """The events at the end of a log, of the last agent."""
    begin = max(0, size - _TAIL_BYTES)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.closing(os.fdopen(fd, "rb")) as file:
        file.seek(begin)
        data = file.read(_TAIL_BYTES)
    if begin:
        data = data.partition(b"\n")[2]
    yield from parse_log(data).events
