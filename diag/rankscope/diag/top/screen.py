"""The lines of a screen: the job, its ranks, a stack, an analysis, the keys. Pure; 80 columns are enough.

Everything that came from the job is shown inert. A line is cut by the columns that it takes, not by its
characters: some take two.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from rankscope.diag.periods import age_text
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.text import inert
from rankscope.diag.top.model import TopPage, TopRow
from rankscope.diag.top.view import View, in_order

Style = Literal["", "head", "bad", "warn", "good", "dim", "cursor", "title"]
_HEADS: Final = (
    ("RANK", 6),
    ("STATE", 10),
    ("STEP", 9),
    ("STEPS/S", 8),
    ("SINCE", 6),
    ("COMM", 5),
    ("CPU%", 6),
    ("RSS", 6),
    ("WHERE", 0),
)
_SORTED: Final = {"rank": 0, "step": 2, "steps/s": 3, "since": 4, "comm": 5, "cpu": 6, "rss": 7}
_LEFT: Final = frozenset({1, 8})
_STYLES: Final[dict[str, Style]] = {"hung": "bad", "suspected": "warn", "slow": "warn", "exited": "dim"}
_AROUND: Final = 4
"""Lines that are no ranks: two of the job, the heads, the keys."""
_WIDE: Final = "WF"
_UNITS: Final = ("B", "K", "M", "G", "T")
KEYS: Final = "q quit  s sort  up/down move  enter stack  a analyse  p pause  h help"
BACK: Final = "q back  up/down scroll  enter stack again  a analyse  h help"
HELP: Final = (
    "up down  k j      move            enter   stack of the rank: a look that stops nobody",
    "page up, down     a page          a       analyse now: two looks, each stops a rank",
    "g G               first, last             for some milliseconds",
    "s < >             sort by ...     p       pause",
    "r                 turn around     q       back, quit      ctrl-l  draw anew",
    "",
    "STEP     the script's own number (Monitor.step), else optimizer steps",
    "STEPS/S  over the last 10 s and two steps at least, by the worker's clock",
    "SINCE    time since a step, a batch or a collective went on",
    "COMM     share of the last minute's looks that met a collective under way",
    "CPU%     of one core, all threads of the process; RSS its memory",
    "STATE    hung, suspected, waiting, slow: what the agent has found; exited",
    "-        not known: no probe in that process, or nothing to measure yet",
)


class Line(NamedTuple):
    """One line of the screen, as text and how it is shown."""

    text: str
    style: Style = ""


def rows_that_fit(height: int) -> int:
    """Ranks, or lines of a text, that a screen has room for."""
    return max(1, height - _AROUND)


def draw(page: TopPage, view: View, text: Sequence[str], *, width: int, height: int) -> list[Line]:
    """A screen, ``height`` lines or fewer.

    Args:
        page: what is known of the job.
        view: what is looked at.
        text: what is shown instead of the ranks in another mode.
        width: columns.
        height: lines.
    """
    fits = rows_that_fit(height)
    lines = [Line(_head(page, view), "title"), _word(page)]
    if view.mode == "ranks":
        lines += _ranks(page, view, fits)
        keys = KEYS
    else:
        shown = HELP if view.mode == "help" else text
        title = {"stack": f"stack of rank {view.rank}", "analysis": "analysis", "help": "keys and columns"}
        lines.append(Line(title.get(view.mode, ""), "head"))
        lines += [Line(inert(line)) for line in shown[view.top : view.top + fits]]
        keys = BACK
    lines = lines[: height - 1]
    lines += [Line("")] * (height - 1 - len(lines))
    lines.append(Line(keys, "dim"))
    return [Line(cut(line.text, width, pad=line.style in ("head", "cursor")), line.style) for line in lines]


def plain(page: TopPage) -> str:
    """All ranks without a screen, for a pipe."""
    lines = [_head(page, None), _word(page).text, _heads(View())]
    lines += [_row(row) for row in in_order(page.ranks, View())]
    return "".join(f"{line.rstrip()}\n" for line in lines if line)


def _head(page: TopPage, view: View | None) -> str:
    parts = [f"diag top {inert(page.job)}"]
    here = len(page.ranks)
    parts.append(
        f"{here} rank{'s' * (here != 1)}" + (f" of {page.world_size}" if page.world_size > here else "")
    )
    if page.world_size > here:
        parts.append(f"on {inert(page.host)}")
    if page.restarts:
        parts.append(f"{page.restarts} restart{'s' * (page.restarts != 1)}")
    parts.append(f"{page.time[11:19]} UTC")
    if view is not None and view.paused:
        parts.append("PAUSED (p goes on)")
    return "  ".join(parts)


def _word(page: TopPage) -> Line:
    if page.word:
        return Line(inert(page.word), "bad" if page.is_alarm else "")
    if not page.ranks:
        return Line("no workers on this host just now", "warn")
    rates = [(row.steps_per_second, row.rank) for row in page.ranks if row.steps_per_second is not None]
    parts: list[str] = []
    if rates:
        slowest, rank = min(rates)
        fastest = max(rates)[0]
        parts.append(f"{fastest:.3g} steps/s" + (f", rank {rank} {slowest:.3g}" if slowest < fastest else ""))
    elif all(row.seconds_since_progress is None for row in page.ranks):
        parts.append("no probe in these processes: no steps, no collectives")
    elif all(row.step is None for row in page.ranks):
        parts.append("no steps seen")
    parts.append(f"CPU {sum(row.cpu_percent or 0 for row in page.ranks):.0f} %")
    parts.append(f"memory {_short(sum(row.rss_bytes for row in page.ranks))}")
    return Line("  ".join(parts))


def _ranks(page: TopPage, view: View, fits: int) -> list[Line]:
    lines = [Line(_heads(view), "head")]
    ordered = in_order(page.ranks, view)
    for row in ordered[view.top : view.top + fits]:
        style: Style = "cursor" if row.rank == view.rank else _STYLES.get(row.state, "")
        lines.append(Line(_row(row), style))
    more = [row.rank for row in ordered[view.top + fits :]]
    if more and lines:
        lines[0] = Line(f"{lines[0].text}  ({len(more)} below: {fold_ranks(more)})", "head")
    return lines


def _heads(view: View) -> str:
    mark = "^" if view.reverse else "*"
    marked = _SORTED[view.order]
    names = [f"{name}{mark}" if at == marked else name for at, (name, _) in enumerate(_HEADS)]
    return _columns(names)


def _row(row: TopRow) -> str:
    since, rate, share, cpu = (
        row.seconds_since_progress,
        row.steps_per_second,
        row.communication,
        row.cpu_percent,
    )
    return _columns(
        (
            str(row.rank),
            row.state,
            "-" if row.step is None else str(row.step),
            "-" if rate is None else f"{rate:.3g}",
            "-" if since is None else age_text(since),
            "-" if share is None else f"{100 * share:.0f}%",
            "-" if cpu is None else f"{cpu:.0f}",
            _short(row.rss_bytes),
            inert(row.where),
        )
    )


def _columns(cells: Sequence[str]) -> str:
    aligned = [
        f" {cell:<{width - 1}}" if at in _LEFT else f"{cell:>{width}}"
        for at, (cell, (_, width)) in enumerate(zip(cells, _HEADS, strict=True))
        if width
    ]
    return f"{''.join(aligned)} {cells[-1]}"


def _short(size: float) -> str:
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:  # noqa: PLR2004 - three digits fit
            return f"{size:.1f}{unit}" if size < 10 and unit in "GT" else f"{size:.0f}{unit}"  # noqa: PLR2004
        size /= 1024
    raise AssertionError


def cut(text: str, width: int, *, pad: bool = False) -> str:
    """The beginning of a text that takes no more than ``width`` columns, filled up with spaces if asked."""
    if text.isascii():
        kept = text[:width]
        return kept.ljust(width) if pad else kept
    taken = 0
    for at, char in enumerate(text):
        columns = (
            2 if unicodedata.east_asian_width(char) in _WIDE else 0 if unicodedata.combining(char) else 1
        )
        if taken + columns > width:
            return text[:at] + " " * ((width - taken) * pad)
        taken += columns
    return text + " " * ((width - taken) * pad)
