"""Draws transitions as lanes: a column a state, a row a transition, an arrow from column to column.

Plain SVG text, so that pages show it without a network and without a script. The same rows give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

LANE: Final = 112
ROW: Final = 30
TOP: Final = 58
LEFT: Final = 14
INK: Final = "#1f4e79"
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#1f4e79"/></marker></defs>'
)
LETTER: Final = 6.6
"""Pixels that a letter of 12 px takes at most, on average."""


@dataclass(frozen=True, slots=True)
class Move:
    """One transition.

    Attributes:
        start: state it begins in, ``""`` for any.
        end: state it leads to.
        why: what makes it happen.
        then: what comes of it, may be empty.
    """

    start: str
    end: str
    why: str
    then: str = ""


def lanes(states: Sequence[str], moves: Sequence[Move], *, title: str) -> str:
    """The picture.

    Args:
        states: the columns, from the left.
        moves: the rows, from the top.
        title: said to those who cannot see it.
    """
    labels = [(move.why, move.then) for move in moves]
    widest = max(len(why) + len(then) + 3 for why, then in labels)
    labels_at = LEFT + LANE * len(states) + 10
    width, height = round(labels_at + widest * LETTER + LEFT), TOP + ROW * len(moves) + 14
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        _TIP,
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, state in enumerate(states):
        lines += _lane(state, _middle(number), height)
    for number, move in enumerate(moves):
        lines += _row(states, move, TOP + ROW * number + ROW // 2, labels_at)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _middle(number: int) -> int:
    return LEFT + LANE * number + LANE // 2


def _lane(state: str, x: int, height: int) -> list[str]:
    half = LANE // 2 - 5
    return [
        f'<rect x="{x - half}" y="12" width="{2 * half}" height="28" rx="5" fill="#dbe9f6" stroke="{INK}"/>',
        f'<text x="{x}" y="30" text-anchor="middle" font-weight="bold">{escape(state)}</text>',
        f'<line x1="{x}" y1="40" x2="{x}" y2="{height - 8}" stroke="#b8c4d0" stroke-dasharray="3 4"/>',
    ]


def _row(states: Sequence[str], move: Move, y: int, labels_at: int) -> list[str]:
    end = _middle(states.index(move.end))
    then = f' <tspan font-weight="bold">{escape(move.then)}</tspan>' if move.then else ""
    label = f'<text x="{labels_at}" y="{y + 4}">{escape(move.why)}{then}</text>'
    if not move.start:
        last = _middle(len(states) - 1)
        dots = [f'<circle cx="{_middle(n)}" cy="{y}" r="3" fill="#1f4e79"/>' for n in range(len(states))]
        return [*dots, _arrow(f"M{last},{y} L{end + 6},{y}"), label]
    start = _middle(states.index(move.start))
    dot = f'<circle cx="{start}" cy="{y}" r="4" fill="#1f4e79"/>'
    if start == end:
        return [dot, _arrow(f"M{start},{y - 4} c26,-10 26,18 3,9"), label]
    return [dot, _arrow(f"M{start},{y} L{end + (6 if end < start else -6)},{y}"), label]


def _arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#1f4e79" stroke-width="1.6" marker-end="url(#tip)"/>'
