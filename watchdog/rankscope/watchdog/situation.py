"""Who waits for whom and how the awaited behave, from two observations of all ranks. Pure.

Only the sinks are judged: ranks that have not entered the open collective. A waiting rank may spin at
full CPU (NCCL) and proves nothing by it (DIAGNOSIS.md, "Noticing").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rankscope.watchdog.limits import (
    BEAT_STALE,
    BUSY_CPU_SHARE,
    BUSY_IO_RATE,
    CAPTURE_SWITCHES,
    HELD_CPU_SHARE,
    QUIET_CPU_SHARE,
    QUIET_SWITCH_RATE,
)
from rankscope.watchdog.observations import RankObservation, SinkClass, Situation
from rankscope.watchdog.page import GroupSeq

_ALL_THE_TIME: Final = 1.2
"""Of a thread: more than this it cannot have wanted to run, though two files are not read at one moment."""
_LIVELINESS: tuple[SinkClass, ...] = ("frozen", "quiet", "ticking", "busy")


def advanced(before: RankObservation, now: RankObservation) -> bool:
    """Whether the rank made progress: a step, a batch, a completed collective, a call of ours."""
    if now.step > before.step or now.batches > before.batches or _called(before, now):
        return True
    completed = {group_key(group): group.completed for group in before.groups}
    return any(group.completed > completed.get(group_key(group), -1) for group in now.groups)


def _called(before: RankObservation, now: RankObservation) -> bool:
    """Whether the rank called a timer or the SDK: a step, a stage that began or ended, an interval."""
    if now.last_timer_call > before.last_timer_call or now.user_step_ns > before.user_step_ns:
        return True
    return (now.interval, now.stage_limit, now.stage) != (before.interval, before.stage_limit, before.stage)


def group_key(group: GroupSeq) -> tuple[str, int]:
    """What two ranks must agree on to mean the same group; names alone repeat between disjoint groups."""
    return group.name, group.members_hash


def judge(
    before: Sequence[RankObservation],
    now: Sequence[RankObservation],
    *,
    seconds: float,
    communicating: frozenset[int] = frozenset(),
    captures: int = 0,
) -> Situation:
    """Say who waits, who is waited for, and how those behave.

    Args:
        before: the ranks at the start of the window.
        now: the same ranks at its end.
        seconds: length of the window.
        communicating: ranks whose stacks stand in a communication call (known after a snapshot).
        captures: snapshots taken inside the window; each costs the ranks a few switches.
    """
    earlier = {rank.rank: rank for rank in before}
    alive = [rank for rank in now if rank.alive]
    classes: dict[int, SinkClass] = {
        rank.rank: sink_class(earlier.get(rank.rank, rank), rank, seconds=seconds, captures=captures)
        for rank in alive
    }
    # What a page says of groups is as old as its beat: the rank may have left the collective since.
    held = {
        rank.rank
        for rank in alive
        if classes[rank.rank] != "frozen" and _is_held(earlier.get(rank.rank, rank), rank, seconds)
    }
    # The probe ends with the script: its last page may be from inside of a collective that is over.
    ended = {rank.rank for rank in alive if rank.returned}
    waiting = waiting_ranks(alive) - held - ended
    # A quiet thread in a communication call waits too: P2P and gloo's barrier are in no counter.
    waiting |= {rank for rank in communicating if classes.get(rank) == "quiet"}
    sinks = _sinks(now, waiting)
    frozen = tuple(sorted(rank for rank, name in classes.items() if name == "frozen"))
    return Situation(
        waiting=tuple(sorted(waiting)),
        sinks=sinks,
        sink_class=_liveliest(sinks, classes),
        all_stopped=bool(alive) and all(rank.state in "Tt" for rank in alive),
        frozen=frozen,
    )


def waiting_ranks(ranks: Sequence[RankObservation]) -> set[int]:
    """Ranks inside a collective, by sequence numbers: enqueued, not completed."""
    return {rank.rank for rank in ranks if any(group.enqueued > group.completed for group in rank.groups)}


def _sinks(ranks: Sequence[RankObservation], waiting: set[int]) -> tuple[int, ...]:
    """The ranks the waiting ones wait for; without waiting ranks every living rank is judged."""
    if not waiting:
        return tuple(rank.rank for rank in ranks if rank.alive)
    behind = {rank for group in _open_groups(ranks, waiting) for rank in _not_entered(group, ranks)}
    if not behind:
        # Unknown to the counters: whoever does not wait.
        behind = {rank.rank for rank in ranks}
    return tuple(sorted(behind - waiting))


def _open_groups(ranks: Sequence[RankObservation], waiting: set[int]) -> list[GroupSeq]:
    """For each group, the furthest member's view when that member waits in it."""
    furthest: dict[tuple[str, int], GroupSeq] = {}
    for rank in ranks:
        for group in rank.groups:
            known = furthest.get(group_key(group))
            if rank.rank in waiting and group.enqueued > group.completed:
                ahead = known is None or group.enqueued > known.enqueued
                furthest[group_key(group)] = group if ahead or known is None else known
    return list(furthest.values())


def _not_entered(group: GroupSeq, ranks: Sequence[RankObservation]) -> set[int]:
    """Members that have not entered ``group``'s newest collective.

    A rank that lists no such group may be a member that never got as far, unless the group is complete
    without it.
    """
    views = {rank.rank: _of_group(rank, group) for rank in ranks}
    listed = sum(view is not None for view in views.values())
    return {
        rank
        for rank, view in views.items()
        if (view.enqueued < group.enqueued if view is not None else listed < group.size)
    }


def _of_group(rank: RankObservation, group: GroupSeq) -> GroupSeq | None:
    return next((one for one in rank.groups if group_key(one) == group_key(group)), None)


def _liveliest(sinks: Sequence[int], classes: Mapping[int, SinkClass]) -> SinkClass:
    """Dead sinks (no class) count as frozen; without sinks there is nobody to judge."""
    if not sinks:
        return "none"
    dead: SinkClass = "frozen"
    seen: list[SinkClass] = [classes.get(rank, dead) for rank in sinks]
    return max(seen, key=_LIVELINESS.index)


def _came_out(before: RankObservation, now: RankObservation) -> bool:
    """Whether a rank in the kernel at both looks ran in between: it writes to a slow disk."""
    if now.state != "D" or before.state != "D":
        return False
    return now.io_bytes > before.io_bytes or now.switches > before.switches + CAPTURE_SWITCHES


def _is_held(before: RankObservation, now: RankObservation, seconds: float) -> bool:
    """Whether no Python code ran in between, not even the probe's; at its exit it has ended."""
    return seconds >= BEAT_STALE and 0 < now.beat_ns == before.beat_ns and not now.returned


def main_share(on_cpu: float, run_delay: float, seconds: float, *, held: bool) -> float:
    """Share of a core that a main thread used or wanted, for it may have waited for one.

    Args:
        on_cpu: seconds that it ran in the window.
        run_delay: seconds that it waited for a core, as the kernel counts them.
        seconds: length of the window.
        held: whether it wakes for the GIL only: then it waits for a core each time, which on a busy machine
            adds up to more than quiet threads want (measured: 1 to 10 %).
    """
    share = (on_cpu + run_delay) / seconds
    # The counter jumps at times (measured on Linux 6.18: by 10 s in 4 s, at 3 of 489 looks).
    return on_cpu / seconds if held or share > _ALL_THE_TIME else share


def sink_class(
    before: RankObservation, now: RankObservation, *, seconds: float, captures: int = 0
) -> SinkClass:
    """How one rank behaved over ``seconds`` (DIAGNOSIS.md, "Class of a sink")."""
    if now.state in "TtDZX" and before.state in "TtDZX" and not _came_out(before, now):
        return "frozen"
    if seconds <= 0:
        return "busy"
    switches = now.switches - before.switches - captures * CAPTURE_SWITCHES
    wakes = switches > QUIET_SWITCH_RATE * seconds
    held = wakes and _is_held(before, now, seconds)
    delay = now.run_delay_seconds - before.run_delay_seconds
    cpu = main_share(now.cpu_seconds - before.cpu_seconds - delay, delay, seconds, held=held)
    other_cpu = (now.other_cpu_seconds - before.other_cpu_seconds) / seconds
    child_cpu = (now.children_cpu_seconds - before.children_cpu_seconds) / seconds
    io_rate = (now.io_bytes - before.io_bytes) / seconds
    child_io = (now.children_io_bytes - before.children_io_bytes) / seconds
    if max(cpu, other_cpu, child_cpu) >= BUSY_CPU_SHARE or max(io_rate, child_io) >= BUSY_IO_RATE:
        return "busy"
    # A thread that waits for the GIL wakes every 5 ms: whoever holds it and does not work holds all.
    rests = other_cpu < HELD_CPU_SHARE if held else not wakes
    still = cpu < QUIET_CPU_SHARE and rests
    if still and io_rate <= 0 and child_cpu < QUIET_CPU_SHARE:
        return "quiet"
    return "ticking"
