"""Ranks that part in the program: collectives, groups, messages, the store, and torch's features on top.

The answers were written from the faults and from DIAGNOSIS.md's table of rules before any of these jobs was
diagnosed. Under ``diag run`` there are flight records: rules 3 to 5 decide. Beside torchrun there are only
stacks: rules 8 and 9. Where the two can know different things, a row has a twin with ``_beside`` in its name.

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
from tests.faults.rows import ANYWHERE, HERE, LATEST, Answer, Beside, Row, program

from rankscope.diag.ranks import fold_ranks

Command = Callable[[Path, Draw], list[str]]
Guilty = Callable[[Draw], list[int]]
_NUMBERED: Final = ("4", "8")
"""Rules for a rank that did not come: by sequence numbers, or by stacks."""
_WARM_UP: Final = 75.0
"""Seconds; the quiet limit is 60 s where no step was made yet, where nobody waits for anybody in a job little
known, and where a child process is younger than the last step."""
_CALLED: Final = ("3", "9")
"""Rules for a rank that called something else: by sequence numbers, or by stacks."""


def _drawn(draw: Draw) -> list[int]:
    return [draw.rank]


def _nobody(_draw: Draw) -> list[int]:
    return []


def _everyone(draw: Draw) -> list[int]:
    return list(range(draw.ranks))


def _and_next(draw: Draw) -> list[int]:
    return [draw.rank, (draw.rank + 1) % draw.ranks]


def _and_other(draw: Draw) -> list[int]:
    return [draw.rank, _other(draw)]


def _other(draw: Draw) -> int:
    """A second rank, which is rank 0 for none."""
    if draw.rank == 0:
        return draw.ranks - 1
    return draw.rank - 1 if draw.rank > 1 else draw.rank + 1


def _before(draw: Draw) -> list[int]:
    return [(draw.rank - 1) % draw.ranks]


def _answer(draw: Draw, *, kind: str, function: str, line: str, rule: str, guilty: Guilty) -> Answer:
    culprits = fold_ranks(sorted(guilty(draw))) or "-"
    return Answer("RankNonCommHang", culprits, kind, function, rule, line)


def _rows(
    name: str,
    what: str,
    command: Command,
    kind: str,
    function: str,
    *,
    line: str,
    rules: tuple[str, str],
    guilty: Guilty = _drawn,
    ranks: tuple[int, int] = (3, 8),
    zero: bool = True,
    beside: Beside | None = None,
    within: float = LATEST,
) -> tuple[Row, ...]:
    """A fault in both modes: one row, or two where different rules find it."""
    expect = partial(_answer, kind=kind, function=function, line=line, guilty=guilty)
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


def _aborts(
    name: str, what: str, command: Command, guilty: Guilty = _drawn, ranks: tuple[int, int] = (3, 8)
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


def _script(name: str, fault: str, *flags: str) -> Command:
    return program(name, f"--fault={fault}", "--rank={rank}", "--at={at}", *flags)


def _with_other(name: str, fault: str, flag: str) -> Command:
    """The same, with the second rank in a flag."""

    def command(folder: Path, draw: Draw) -> list[str]:
        return _script(name, fault, f"{flag}={_other(draw)}")(folder, draw)

    return command


_averaging = partial(_script, "averaging_job.py")
_grouped = partial(_script, "grouped_job.py")
_messages = partial(_script, "messages_job.py")
_meeting = partial(_script, "meeting_job.py")

_COLLECTIVES: Final = (
    *_rows(
        "missing",
        "a rank waits for a service and never comes to the reduction",
        _averaging("missing"),
        "user_code",
        "ask_service",
        line="service",
        rules=_NUMBERED,
    ),
    *_rows(
        "two_missing",
        "two ranks wait for a service and never come to the reduction",
        _with_other("averaging_job.py", "two_missing", "--second"),
        "user_code",
        "ask_service",
        line="service",
        rules=_NUMBERED,
        guilty=_and_other,
        ranks=(4, 8),
    ),
    *_rows(
        "pile",
        "a rank waits for a service while the others start up to 20 reductions before they wait for any",
        _averaging("pile"),
        "user_code",
        "ask_service",
        line="service",
        rules=_NUMBERED,
    ),
    *_rows(
        "short",
        "a rank has one batch less and meets the others' last reduction with its last barrier",
        _averaging("short"),
        "desync",
        "close_run",
        line="short",
        rules=_CALLED,
    ),
    *_rows(
        "other_op",
        "a rank gathers what the others sum up, in the same function",
        _averaging("other_op"),
        "desync",
        "share_spread",
        line="other_op",
        rules=_CALLED,
    ),
    *_rows(
        "branch",
        "a rank has a barrier in a branch that the others do not take",
        _averaging("branch"),
        "desync",
        "publish_weights",
        line="branch",
        rules=_CALLED,
    ),
    *_rows(
        "lone_evaluation",
        "a rank evaluates alone and gathers scores that nobody else has",
        _averaging("evaluation"),
        "desync",
        "score_held_out",
        line="evaluation",
        rules=_CALLED,
    ),
    *_rows(
        "memory",
        "a rank runs out of memory, skips the batch, and comes to the end of the epoch one reduction early",
        _averaging("memory"),
        "desync",
        "tell_epoch",
        line="memory",
        rules=_CALLED,
    ),
)
_SIZES: Final = (
    *_rows(
        "empty",
        "a rank has nothing to sum up: gloo lets no elements pass, and it goes on to the next reduction",
        _averaging("empty"),
        "desync",
        # It stands one call after the one that was odd; the records of gloo's JSON have no stacks.
        "average_gradients",
        line="empty",
        rules=_CALLED,
    ),
    _aborts(
        "shorter", "a rank reduces fewer gradients than the others, and aborts in gloo", _averaging("shorter")
    ),
    _aborts("narrower", "a rank reduces in half precision, and aborts in gloo", _averaging("narrower")),
    _aborts(
        "wider",
        # The one that is at fault sends too much, and raises only when its neighbour is gone.
        "a rank reduces in double precision, and the neighbour it sends to aborts in gloo",
        _averaging("wider"),
        guilty=_before,
    ),
)
_GROUPS: Final = (
    *_rows(
        "chain",
        "each rank waits for the next in a group of two; only the last, which waits for its data, is guilty",
        _grouped("chain"),
        "user_code",
        "fetch_targets",
        line="chain",
        rules=_NUMBERED,
    ),
    Row(
        "cycle",
        "diagnosis",
        "two ranks use their two groups in different order; the others wait for both",
        partial(_answer, kind="order_deadlock", function="share", line="cycle", rule="5", guilty=_and_other),
        _with_other("grouped_job.py", "cycle", "--partner"),
        renames=("share",),
        least_ranks=5,
        modes=("run",),
    ),
    Row(
        "cycle_beside",
        "diagnosis",
        # Without records both stand in one line, and nothing tells one group of theirs from the other: that
        # they differ from the others is all there is to see.
        "the same by stacks alone: two ranks are in another call than the others",
        partial(_answer, kind="desync", function="share", line="cycle", rule="9", guilty=_and_other),
        _with_other("grouped_job.py", "cycle", "--partner"),
        renames=("share",),
        least_ranks=5,
        modes=("beside",),
    ),
    *_rows(
        "lone_group",
        "a rank makes a new group of all ranks, the others do not",
        _grouped("lone_group"),
        "startup",
        "make_scoring_group",
        line="lone_group",
        rules=_NUMBERED,
    ),
)
_MESSAGES: Final = (
    *_rows(
        "stage",
        "a stage of a pipeline waits for its data; the stages behind receive, those before send",
        _messages("stage"),
        "user_code",
        "wait_for_shard",
        line="stage",
        # No record has gloo's messages: as 4 (a receive waits for its peer) by local variables, or 8.
        rules=("", ""),
    ),
    *_rows(
        "unsent",
        "a rank expects a message that its neighbour does not send; all others, it too, wait in a reduction",
        _messages("unsent"),
        "order_deadlock",
        ANYWHERE,
        # Each of the two waits for the other, and nothing tells whose call is the one too many.
        line="",
        rules=("5", ""),
        guilty=_and_next,
        ranks=(4, 8),
    ),
    *_rows(
        "ring",
        "every rank sends to the next one before it receives",
        _messages("ring"),
        "order_deadlock",
        "swap_at_once",
        line="ring",
        rules=("5", "5"),
        guilty=_everyone,
        zero=False,
    ),
    *_rows(
        "halo",
        "a rank waits before it swaps edges; its neighbours wait in the batch, the others in a reduction",
        _messages("halo"),
        "user_code",
        "wait_for_grid",
        line="halo",
        rules=_NUMBERED,
        ranks=(4, 8),
    ),
)
_MEETINGS: Final = (
    *_rows(
        "absent",
        "a rank never comes to init_process_group",
        _meeting("absent"),
        "startup",
        "wait_for_licence",
        line="absent",
        rules=("11", "11"),
        beside=Beside(after="rank {rank} has started", quiet=12.0),
        within=_WARM_UP,
    ),
    *_rows(
        "lone_key",
        "a rank waits for a key that nobody writes to the store, the others for the rank",
        _meeting("lone_key"),
        "store_wait",
        "read_plan",
        line="key",
        rules=_NUMBERED,
    ),
    *_rows(
        "no_key",
        "all ranks wait for a key that nobody writes to the store",
        _meeting("no_key"),
        "store_wait",
        "read_plan",
        line="key",
        rules=("10", "10"),
        guilty=_nobody,
        zero=False,
        within=_WARM_UP,
    ),
    *_rows(
        "late_key",
        "a rank waits for something else before it writes the key that all others wait for",
        _meeting("late_key"),
        # The job is long past its start, and the store is not what is wrong: the rank's own place says it.
        "user_code",
        "plan_epoch",
        line="late_key",
        rules=("11", "11"),
    ),
    *_rows(
        "monitored",
        "a rank never comes to a monitored barrier",
        _meeting("monitored"),
        "user_code",
        "warm_cache",
        line="monitored",
        rules=("8", "8"),  # no record has it
    ),
    *_rows(
        "lone_monitored",
        "a rank comes to a monitored barrier that the others do not have",
        _meeting("lone_monitored"),
        "desync",
        "meet_all",
        line="lone_monitored",
        rules=("4", "9"),
    ),
)
_FEATURES: Final = (
    *_rows(
        "unused",
        "a rank's batch needs one of two heads, DDP waits for the gradients of both",
        _script("replicated_job.py", "unused"),
        "desync",
        "tell_loss",
        line="unused",
        rules=_CALLED,
    ),
    *_rows(
        "uneven",
        "a rank has one batch more than the others and waits in its backward",
        _script("replicated_job.py", "uneven"),
        "desync",
        "update",
        line="uneven",
        rules=_CALLED,
    ),
    *_rows(
        "sharded",
        "a rank waits for its batch, the others for its shard of the weights (FSDP2)",
        _script("sharded_job.py", "data"),
        "user_code",
        "fetch",
        line="data",
        rules=_NUMBERED,
        ranks=(3, 5),
    ),
    *_rows(
        "state",
        "a rank collects the whole state of a sharded model, the others train on",
        _script("sharded_job.py", "state"),
        "desync",
        "collect_weights",
        line="state",
        rules=_CALLED,
        ranks=(3, 5),
    ),
    _aborts(
        "state_sizes",
        "the same, and the others gather larger weights than the state's: it aborts in gloo",
        _script("sharded_job.py", "state_sizes"),
        ranks=(3, 5),
    ),
    *_rows(
        "functional",
        "a rank waits for samples, the others in a functional collective",
        program("functional_job.py", "--rank={rank}", "--at={at}"),
        "user_code",
        "draw_samples",
        line=HERE,
        rules=_NUMBERED,
    ),
    *_rows(
        "compiling",
        "a rank compiles its model, and its compiler waits for ever",
        program("compiling_job.py", "--folder={folder}", "--rank={rank}", "--at={at}"),
        "compile",
        "forward",
        line=HERE,
        rules=_NUMBERED,
        ranks=(3, 4),
        within=_WARM_UP,
    ),
)
ROWS: Final[tuple[Row, ...]] = (*_COLLECTIVES, *_SIZES, *_GROUPS, *_MESSAGES, *_MEETINGS, *_FEATURES)
