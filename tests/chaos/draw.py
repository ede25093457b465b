"""What is left to chance in a round, all from the seed and its number: the same on any machine. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.chaos.plan import GATE, HANG_INTERVAL, Act, Deed, Kind, Round, Settings, When
from tests.chaos.rows import FAULTS, HEALTHY

_KINDS: Final[tuple[tuple[Kind, int], ...]] = (
    ("fault", 30),
    ("healthy", 8),
    ("worker", 24),
    ("agent", 20),
    ("full disk", 10),
    ("stalled folder", 8),
)
_FIRST: Final = 8
_LAST: Final = 30
_KNOWN: Final = 26
"""Steps after which a job is known well enough for the short limit (20 signs of progress)."""
_GAP: Final = 10


def draw(seed: int, number: int) -> Round:
    """One round.

    Args:
        seed: of all rounds.
        number: of this one, from 0.
    """
    chance = random.Random(f"chaos {seed} {number}")
    kinds, weights = zip(*_KINDS, strict=True)
    kind: Kind = chance.choices(kinds, weights)[0]
    one = Round(seed, number, kind, chance.randint(2, 3), _settings(chance))
    if kind in ("fault", "healthy"):
        return _matrix(chance, one)
    makers = {"worker": _worker, "agent": _agent, "full disk": _full, "stalled folder": _stalled}
    return makers[kind](chance, one)


def _settings(chance: random.Random) -> Settings:
    return Settings(
        restarts=chance.choices((0, 1, 2), (3, 4, 3))[0],
        on_hang=chance.choices(("auto", "restart", "notify", "hold", "log"), (6, 2, 1, 1, 1))[0],
        policy=chance.choices(("OnFailure", "ExitCodeAndErrorMsg", "Never"), (7, 2, 1))[0],
        interval=None,
        budget=chance.choices((5.0, 2.0, 0.0), (6, 2, 2))[0],
        logs=chance.choice(("on", "off")),
        notices=chance.random() < 0.3,
    )


def _matrix(chance: random.Random, one: Round) -> Round:
    rows: Sequence[str] = sorted(FAULTS if one.kind == "fault" else HEALTHY)
    row = chance.choice(rows)
    settings = one.settings
    if one.kind == "fault":
        # The rows' programs fail again after a restart: more than one takes minutes.
        most = 1 if FAULTS[row].restarts else 0
        settings = replace(settings, interval=HANG_INTERVAL, restarts=min(most, settings.restarts))
    return replace(one, row=row, settings=settings)


def _early(chance: random.Random, *, deeds: Sequence[Deed], ranks: int) -> Act:
    """At any moment of a job's life."""
    when: When = chance.choices(("running", "step"), (1, 3))[0]
    value = chance.uniform(0.0, 3.0) if when == "running" else chance.randint(_FIRST, _LAST)
    return Act(chance.choice(deeds), when, value, chance.randrange(ranks))


def _again(chance: random.Random, first: Act, deeds: Sequence[Deed], ranks: int) -> Act:
    """A second act, once the job has got further."""
    base = first.value if first.when == "step" else _FIRST
    step = min(GATE, base + _GAP + chance.randint(0, 15))
    return Act(chance.choice(deeds), "step", step, chance.randrange(ranks))


def _worker(chance: random.Random, one: Round) -> Round:
    if chance.random() < 0.3:
        step = chance.randint(_KNOWN, GATE - _GAP)
        act = Act("worker SIGSTOP", "step", step, chance.randrange(one.ranks))
        return replace(one, acts=(act,), settings=replace(one.settings, interval=HANG_INTERVAL))
    deeds: Sequence[Deed] = ("worker SIGKILL", "worker SIGTERM")
    first = _early(chance, deeds=deeds, ranks=one.ranks)
    more = (_again(chance, first, deeds, one.ranks),) if chance.random() < 0.3 else ()
    return replace(one, acts=(first, *more))


def _agent(chance: random.Random, one: Round) -> Round:
    deed: Deed = chance.choice(("agent SIGKILL", "agent SIGKILL", "agent SIGTERM"))
    first = _early(chance, deeds=(deed,), ranks=one.ranks)
    if chance.random() < 0.2:
        first = Act(deed, "starting", chance.uniform(0.0, 1.0))
    if deed == "agent SIGTERM":
        return replace(one, acts=(first,))
    kill: Sequence[Deed] = ("worker SIGKILL", "worker SIGTERM")
    if chance.random() < 0.5:
        before = _early(chance, deeds=kill, ranks=one.ranks)
        return replace(one, acts=(before, _again(chance, before, (deed,), one.ranks)))
    more = (_again(chance, first, kill, one.ranks),) if chance.random() < 0.5 else ()
    return replace(one, acts=(first, *more))


def _full(chance: random.Random, one: Round) -> Round:
    first = Act("fill", *_moment(chance))
    return replace(one, place="small", acts=_with_more(chance, one, first, may_be_freed=True))


def _stalled(chance: random.Random, one: Round) -> Round:
    first = Act(chance.choice(("freeze", "freeze", "remove")), *_moment(chance))
    if first.deed == "remove":
        return replace(one, acts=_with_more(chance, one, first, may_be_freed=False))
    end = Act("thaw", "done") if chance.random() < 0.5 else Act("thaw", "later", chance.uniform(1.0, 8.0))
    kill: Sequence[Deed] = ("worker SIGKILL",)
    middle = (_again(chance, first, kill, one.ranks),) if chance.random() < 0.3 else ()
    if middle:
        # Whether workers are started before the folder answers is for the agent: it is thawed in any case.
        end = Act("thaw", "later", chance.uniform(1.0, 8.0))
    return replace(one, place="frozen", acts=(first, *middle, end))


def _moment(chance: random.Random) -> tuple[When, float]:
    if chance.random() < 0.25:
        return "running", chance.uniform(0.0, 2.0)
    return "step", float(chance.randint(_FIRST, _LAST))


def _with_more(chance: random.Random, one: Round, first: Act, *, may_be_freed: bool) -> tuple[Act, ...]:
    """A worker is killed meanwhile, half of the time; and there is room again, half of the time."""
    killed = chance.random() < 0.5
    kill = (_again(chance, first, ("worker SIGKILL", "worker SIGTERM"), one.ranks),) if killed else ()
    later = Act("free", "later", chance.uniform(0.0, 4.0))
    return (first, *kill, *((later,) if may_be_freed and chance.random() < 0.5 else ()))
