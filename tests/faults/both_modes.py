"""Rows of faults that both modes find, each by what it can know.

Under ``diag run`` there are flight records: rules 3 to 5 decide. Beside torchrun there are only stacks: rules
8 and 9. Where the two can know different things, a row has a twin with ``_beside`` in its name. The answers
were written from the faults and from DIAGNOSIS.md's table of rules before any of these jobs was diagnosed.

What a place is called (``kind``) follows the culprit's own stack: a sleep in the user's function is
``user_code``, a set-up of groups that nobody else has come to is ``startup``, another call than the others'
is ``desync``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import ANYWHERE, Answer, Beside, Command, Row, program

from rankscope.diag.ranks import fold_ranks

Guilty = Callable[[Draw], list[int]]
NUMBERED: Final = ("4", "8")
"""Rules for a rank that did not come: by sequence numbers, or by stacks."""
CALLED: Final = ("3", "9")
"""Rules for a rank that called something else: by sequence numbers, or by stacks."""


def drawn(draw: Draw) -> list[int]:
    return [draw.rank]


def nobody(_draw: Draw) -> list[int]:
    return []


def everyone(draw: Draw) -> list[int]:
    return list(range(draw.ranks))


def next_rank(draw: Draw) -> list[int]:
    return [(draw.rank + 1) % draw.ranks]


def drawn_and_next(draw: Draw) -> list[int]:
    return [draw.rank, (draw.rank + 1) % draw.ranks]


def drawn_and_other(draw: Draw) -> list[int]:
    return [draw.rank, other_rank(draw)]


def other_rank(draw: Draw) -> int:
    """A second rank, which is rank 0 for none."""
    if draw.rank == 0:
        return draw.ranks - 1
    return draw.rank - 1 if draw.rank > 1 else draw.rank + 1


def rank_before(draw: Draw) -> list[int]:
    return [(draw.rank - 1) % draw.ranks]


def answer(draw: Draw, *, kind: str, function: str, line: str, rule: str, guilty: Guilty) -> Answer:
    culprits = fold_ranks(sorted(guilty(draw))) or "-"
    return Answer("RankNonCommHang", culprits, kind, function, rule, line)


def in_both_modes(
    name: str,
    what: str,
    command: Command,
    kind: str,
    function: str,
    *,
    line: str,
    rules: tuple[str, str],
    guilty: Guilty = drawn,
    ranks: tuple[int, int] = (3, 8),
    zero: bool = True,
    beside: Beside | None = None,
    within: float | None = None,
) -> tuple[Row, ...]:
    """A fault in both modes: one row, or two where different rules find it."""
    expect = partial(answer, kind=kind, function=function, line=line, guilty=guilty)
    both = Row(
        name,
        "diagnosis",
        what,
        partial(expect, rule=rules[0]),
        command,
        renames=(function,) if function != ANYWHERE else (),
        least_ranks=ranks[0],
        most_ranks=ranks[1],
        zero=zero,
        beside=beside or Beside(),
        within=within,
    )
    if len(set(rules)) == 1:
        return (both,)
    stacks = replace(both, name=f"{name}_beside", modes=("beside",), expected=partial(expect, rule=rules[1]))
    return replace(both, modes=("run",)), stacks


def aborts(
    name: str, what: str, command: Command, guilty: Guilty = drawn, ranks: tuple[int, int] = (3, 8)
) -> Row:
    """A fault that gloo ends by itself: who gets more bytes than it expects calls ``abort()``.

    It is dead (rule 1) and left no stack; torchrun ends the others at once: nobody is there to look at later.
    """
    return Row(
        name,
        "diagnosis",
        what,
        lambda draw: Answer("Exited", fold_ranks(guilty(draw)), "dead", ANYWHERE, "1"),
        command,
        least_ranks=ranks[0],
        most_ranks=ranks[1],
        modes=("run",),
    )


def script(name: str, fault: str, *flags: str) -> Command:
    return program(name, f"--fault={fault}", "--rank={rank}", "--at={at}", *flags)


def with_other(name: str, fault: str, flag: str) -> Command:
    """The same, with the second rank in a flag."""

    def command(folder: Path, draw: Draw) -> list[str]:
        return script(name, fault, f"{flag}={other_rank(draw)}")(folder, draw)

    return command
