"""Rows from samples: how fast each rank steps, since when it stands, how much it communicates. Pure.

Step times are those the worker wrote, so rates do not depend on when it was looked at. A collective's time is
known only as of a look, and its share is that of the looks that met one under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rankscope.diag.model import RankState
from rankscope.diag.top.model import RankSample, Sample, TopRow
from rankscope.diag.top.standing import Standing
from rankscope.diag.top.whereabouts import has_stepped, told_place, under_way
from rankscope.watchdog.page import SlotView

_NANO: Final = 1e-9
_RATE_NS: Final = 10_000_000_000
_SHARE_NS: Final = 60_000_000_000
_MOST_KEPT: Final = 256
_STALLED: Final = 3.0
"""Mean step times without a step after which the rate is 0 rather than what it was."""
_LONG_WAIT: Final = 5.0
"""Seconds in a collective after which a rank is said to wait."""


@dataclass(slots=True)
class _Past:
    """What was seen of one process."""

    steps: deque[tuple[int, int]] = field(default_factory=lambda: deque[tuple[int, int]](maxlen=_MOST_KEPT))
    looks: deque[tuple[int, bool]] = field(default_factory=lambda: deque[tuple[int, bool]](maxlen=_MOST_KEPT))
    cpu: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=2))
    groups: tuple[tuple[str, int, int], ...] = ()
    batches: int = 0
    changed_ns: int = 0


class Rates:
    """Follows the ranks from look to look."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._past: dict[tuple[int, int], _Past] = {}

    def rows(self, sample: Sample, standing: Standing) -> tuple[TopRow, ...]:
        """The rows of a sample that is newer than those before it."""
        present = {(one.pid, one.start_ticks) for one in sample.ranks}
        self._past = {key: past for key, past in self._past.items() if key in present}
        return tuple(self._row(one, sample.time_ns, standing) for one in sample.ranks)

    def _row(self, one: RankSample, now: int, standing: Standing) -> TopRow:
        past = self._past.setdefault((one.pid, one.start_ticks), _Past())
        cpu = _cpu_percent(past, one, now)
        slot = one.slot
        if slot is not None:
            _see(past, slot, now)
        since = _since(past, one, now)
        return TopRow(
            rank=one.rank,
            pid=one.pid,
            state=_state(one, standing, since, waits=under_way(slot) is not None),
            step=_step(slot)[0] if slot is not None and has_stepped(slot) else None,
            steps_per_second=None if slot is None else _rate(past, now),
            seconds_since_progress=since,
            communication=None if slot is None or not slot.groups else _share(past, now),
            cpu_percent=cpu,
            rss_bytes=one.rss_bytes,
            where=_where(one),
        )


def _see(past: _Past, slot: SlotView, now: int) -> None:
    step, step_ns = _step(slot)
    if past.steps and step < past.steps[-1][0]:
        past.steps.clear()  # the script counts anew
    if step_ns and (not past.steps or past.steps[-1][1] != step_ns):
        past.steps.append((step, step_ns))
    groups = tuple((group.name, group.enqueued, group.completed) for group in slot.groups)
    if (groups, slot.batches) != (past.groups, past.batches):
        if past.looks:  # at the first look nobody knows when it changed
            past.changed_ns = now
        past.groups, past.batches = groups, slot.batches
    past.looks.append((now, under_way(slot) is not None))


def _step(slot: SlotView) -> tuple[int, int]:
    """The last step and when it was: the script's own count where it gives one."""
    return (slot.user_step, slot.user_step_ns) if slot.user_step_ns else (slot.step, slot.step_ns)


def _rate(past: _Past, now: int) -> float | None:
    steps = past.steps
    if len(steps) < 2:  # noqa: PLR2004 - a rate takes two
        return 0.0 if steps and now - steps[-1][1] > _RATE_NS else None
    recent = [one for one in steps if now - one[1] <= _RATE_NS]
    first = recent[0] if len(recent) > 1 else steps[-2]
    last = steps[-1]
    count, spent = last[0] - first[0], (last[1] - first[1]) * _NANO
    if count <= 0 or spent <= 0:
        return 0.0
    return 0.0 if (now - last[1]) * _NANO > max(1.0, _STALLED * spent / count) else round(count / spent, 3)


def _share(past: _Past, now: int) -> float | None:
    looks = [busy for at, busy in past.looks if now - at <= _SHARE_NS]
    return round(sum(looks) / len(looks), 3) if looks else None


def _cpu_percent(past: _Past, one: RankSample, now: int) -> float | None:
    if not one.lives:
        return None
    past.cpu.append((now, one.cpu_seconds))
    (begin, before), (end, after) = past.cpu[0], past.cpu[-1]
    return round(100 * (after - before) / ((end - begin) * _NANO), 1) if end > begin else None


def _since(past: _Past, one: RankSample, now: int) -> float | None:
    """Seconds since anything went on; of a rank that has done nothing yet, since it started."""
    slot = one.slot
    if slot is None or not one.lives:
        return None
    last = max(slot.step_ns, slot.user_step_ns, past.changed_ns)
    return round(max(0.0, (now - last) * _NANO if last else one.age), 1)


def _state(one: RankSample, standing: Standing, since: float | None, *, waits: bool) -> RankState:
    if not one.lives or one.letter in ("Z", "X"):
        return "exited"
    named = standing.states.get(one.rank)
    if named is not None:
        return named
    return "waiting" if waits and since is not None and since > _LONG_WAIT else "running"


def _where(one: RankSample) -> str:
    if not one.lives:
        return "its process is gone"
    if one.letter in ("T", "t"):
        return "stopped (by a signal or a tracer)"
    slot = one.slot
    if slot is None:
        return _in_kernel(one)
    told = told_place(slot)
    if slot.raised_ns or slot.returned_ns or under_way(slot) is not None:
        return told
    more = _in_kernel(one) if has_stepped(slot) else "before the first step"
    return f"{told}, {more}" if told else more


def _in_kernel(one: RankSample) -> str:
    if one.letter == "D":
        return f"in the kernel (D), {one.wchan or 'it does not say where'}"
    if one.letter == "R":
        return "at work"
    return f"asleep in {one.wchan}" if one.wchan else "asleep"
