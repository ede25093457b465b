"""What a person looks at: which order, which rank, which page; and what a key changes in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rankscope.diag.top.model import TopRow

Mode = Literal["ranks", "stack", "analysis", "help"]
ORDERS: Final = ("rank", "since", "steps/s", "step", "comm", "cpu", "rss")
_SWITCHES: Final = frozenset({"pause", "redraw", "reverse", "sort", "sort_back"})
_NO_VALUE: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class View:
    """What is shown.

    Attributes:
        order: what the ranks are sorted by, the most telling first; reverse turns it around.
        rank: the rank under the cursor, ``None`` before the first key.
        top: first line that is shown.
        asked: what is to be fetched now: the stack of the rank, an analysis.
        ended: whether the user is done.
    """

    mode: Mode = "ranks"
    order: str = "rank"
    reverse: bool = False
    rank: int | None = None
    top: int = 0
    paused: bool = False
    ended: bool = False
    asked: Literal["", "stack", "analysis", "redraw"] = ""


def in_order(rows: Sequence[TopRow], view: View) -> list[TopRow]:
    """The rows as they are shown: for ``since`` the longest first, for rates the slowest."""
    ordered = sorted(rows, key=lambda row: row.rank)
    if view.order != "rank":
        ordered = sorted(ordered, key=lambda row: _value(row, view.order), reverse=True)
    return ordered[::-1] if view.reverse else ordered


def press(view: View, key: str, rows: Sequence[TopRow], height: int, length: int) -> View:
    """What a key makes of the view.

    Args:
        view: as it is.
        key: its name.
        rows: all ranks.
        height: lines that fit.
        length: lines of the text that is shown instead of the ranks.
    """
    view = replace(view, asked="")
    match key:
        case "quit" if view.mode == "ranks":
            return replace(view, ended=True)
        case "quit" | "back":
            return replace(view, mode="ranks", top=0)
        case "help":
            return replace(view, mode="ranks" if view.mode == "help" else "help", top=0)
        case "analyse":
            return replace(view, mode="analysis", top=0, asked="analysis")
        case "enter" if rows:
            return replace(view, mode="stack", top=0, rank=_selected(view, rows), asked="stack")
        case _ if key in _SWITCHES:
            return _switch(view, key)
        case _ if view.mode == "ranks":
            return _move_rank(view, key, rows, height)
        case _:
            return replace(view, top=max(0, min(length - height, view.top + _distance(key, height, length))))


def _switch(view: View, key: str) -> View:
    """Order, pause, and a screen that something else has written to."""
    if key == "pause":
        return replace(view, paused=not view.paused)
    if key == "redraw":
        return replace(view, asked="redraw")
    if key == "reverse":
        return replace(view, reverse=not view.reverse)
    step = 1 if key == "sort" else -1
    return replace(view, order=ORDERS[(ORDERS.index(view.order) + step) % len(ORDERS)])


def _move_rank(view: View, key: str, rows: Sequence[TopRow], height: int) -> View:
    ordered = [row.rank for row in in_order(rows, view)]
    if not ordered:
        return view
    if view.rank is None and key in ("up", "down"):
        return replace(view, rank=ordered[min(view.top, len(ordered) - 1)])
    at = ordered.index(view.rank) if view.rank in ordered else 0
    at = max(0, min(len(ordered) - 1, at + _distance(key, height, len(ordered))))
    return replace(view, rank=ordered[at])


def scrolled(view: View, rows: Sequence[TopRow], height: int) -> View:
    """The view with the rank under the cursor among the lines that fit."""
    if view.mode != "ranks":
        return view
    ordered = [row.rank for row in in_order(rows, view)]
    top = max(0, min(view.top, len(ordered) - height))
    if view.rank in ordered:
        at = ordered.index(view.rank)
        top = min(top, at) if at < top else max(top, at - height + 1)
    return replace(view, top=top)


def _selected(view: View, rows: Sequence[TopRow]) -> int:
    ordered = in_order(rows, view)
    known = {row.rank for row in ordered}
    return view.rank if view.rank is not None and view.rank in known else ordered[0].rank


def _distance(key: str, height: int, length: int) -> int:
    moves = {"up": -1, "down": 1, "page_up": -height, "page_down": height, "first": -length, "last": length}
    return moves.get(key, 0)


def _value(row: TopRow, order: str) -> float:
    values: dict[str, float | None] = {
        "since": row.seconds_since_progress,
        "steps/s": -row.steps_per_second if row.steps_per_second is not None else None,
        "step": -row.step if row.step is not None else None,
        "comm": row.communication,
        "cpu": row.cpu_percent,
        "rss": row.rss_bytes,
    }
    value = values[order]
    return _NO_VALUE if value is None else value
